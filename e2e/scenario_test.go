package e2e

import (
	"testing"
)

// step is a test of a rig. They run in order: some need the jobs of those before.
type step struct {
	name string
	test func(*testing.T, *rig)
}

func TestSalt3008(t *testing.T) { scenario(t, "3008.4") }
func TestSalt3006(t *testing.T) { scenario(t, "3006.29") }

func scenario(t *testing.T, version string) {
	if testing.Short() {
		t.Skip("runs real masters for minutes")
	}
	t.Parallel()
	r := newRig(t, version)
	for _, s := range []step{
		{"commands", func(t *testing.T, r *rig) {
			giveCommands(t, r.sides()...)
			giveOthers(t, r.sides()...)
			r.compare(t)
		}},
		{"jobs runner", func(t *testing.T, r *rig) {
			askRunners(t, r.sides()...)
			askListings(t, r.sides()...)
			r.compare(t)
		}},
		{"S60 ret module", testRet},
		{"S01 S07 S40 the load stays", testLoadStays},
		{"S02 odd values", testOddValues},
		{"S06 S84 events", testEvents},
		{"S08 missing minions", testMissingMinions},
		{"S24 returns sent again", testSentAgain},
		{"S41 S42 S63 searches", testLists},
		{"S41 several functions", testSeveralFunctions},
		{"S48 S85 stand-alone returns", testReq},
		{"S53 S81 runner jobs", testRunnerJobs},
		{"S67 unknown job", testUnknownJob},
		{"S27 hung daemon", testHungDaemon},
		{"S03 S06 S67 killed daemon", testKilledDaemon},
		{"S58 S66 master stops and starts without", testMasterStops},
		{"external job cache", testExtJobCache},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.test(t, r) }) && s.name == "commands" {
			t.Fatal("the other steps ask about these jobs")
		}
	}
}
