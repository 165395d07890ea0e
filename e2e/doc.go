// Package e2e tests Saltern with real Salt masters and minions of Salt 3008 and 3006, and the daemon as users run it.
//
// Each version has one rig: the daemon, a master that keeps its jobs in Saltern, and a master of the same minions' ids
// that keeps them in Salt's own local_cache. The same commands are given to both masters, and what Salt's runners then
// say of them is compared. Cases have the numbers of the project's collection (S01 ...).
//
// What needs minutes runs with SALTERN_LONG=1. Nothing runs with go test -short.
package e2e
