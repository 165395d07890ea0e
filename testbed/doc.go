// Package testbed runs the real parts that Saltern works with, on loopback and in a folder of their own:
// a salt-master with its minions, and the daemon itself. It serves the end-to-end tests and `saltern demo`.
//
// A Bed is one folder and what runs in it:
//
//	bed, err := testbed.New("demo")
//	defer bed.Close()
//	daemon := testbed.NewDaemon(bed, testbed.DaemonOptions{Binary: "bin/saltern"})
//	err = bed.Start(ctx, daemon)
//	salt := testbed.NewSalt(bed, testbed.SaltOptions{Env: env, Minions: []string{"alpha", "beta"}, ...})
//	err = bed.Start(ctx, salt)
//	out, err := salt.Run(ctx, "salt", "*", "test.ping", "--out=json", "--static")
//
// Everything runs in the foreground as a child, each in a process group of its own. Close stops what was started
// last first and waits for all of it. A reaper, a shell that reads a pipe of ours, ends what is left when this
// process dies without Close: a panic, the timeout of go test, kill -9.
//
// Redis (one node, a cluster, a primary with its sentinel) and Cassandra are Services too; a further part is one more.
package testbed
