// Package cluster tests two Salterns over one Redis and one Cassandra, all of them real processes: what one
// acknowledged is read through the other, whatever of the two stores is killed or hung meanwhile.
//
// All tests share one set, as a Cassandra takes half a minute to start: they run one after the other, and each
// leaves everything up and both journals empty. Nothing runs with go test -short.
package cluster
