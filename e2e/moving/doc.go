// Package moving has the tests of moving in and out: jobs that Salt's own returners wrote are imported, and every answer
// of those returners is compared with the one through Saltern; and the way back.
package moving
