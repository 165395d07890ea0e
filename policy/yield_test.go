package policy_test

import (
	"math"
	"testing"
	"time"

	"saltern/policy"
)

func TestYield(t *testing.T) {
	const ms = time.Millisecond
	times := func(each time.Duration, n int) []time.Duration {
		out := make([]time.Duration, n)
		for i := range out {
			out[i] = each
		}
		return out
	}
	quiet := policy.Round{Quiet: times(2*ms, 20)}
	slow := policy.Round{Beside: times(8*ms, 20), Quiet: times(2*ms, 20)}
	fine := policy.Round{Beside: times(3*ms, 20), Quiet: times(2*ms, 20)}
	for _, c := range []struct {
		name   string
		rounds []policy.Round
		want   float64
	}{
		{"starts at the least", nil, 100},
		{"rises fast where nobody waits", []policy.Round{{}, {}}, 256},
		{"rises to the most and no further", make([]policy.Round, 100), 10_000},
		{"too few calls say nothing", []policy.Round{{Beside: times(time.Second, 3)}}, 160},
		{"rises slowly beside calls that do not suffer", []policy.Round{fine, fine}, 132.25},
		{"falls where calls suffer", []policy.Round{{}, {}, {}, quiet, slow}, 245.76},
		{"falls to the least and no further", []policy.Round{{}, slow, slow, slow}, 100},
		{"stays while there is nothing to compare with", []policy.Round{{}, {Beside: times(8*ms, 20)}}, 160},
		{"compares with what it saw in earlier rounds",
			[]policy.Round{{}, {}, {}, quiet, {Beside: times(8*ms, 20)}}, 245.76},
		{"learns that all has become slow",
			append(repeat(policy.Round{Quiet: times(20*ms, 20)}, 20), policy.Round{Beside: times(25*ms, 20)}), 115},
		{"a few slow ones among many are no reason",
			[]policy.Round{{}, quiet, {Beside: append(times(2*ms, 39), time.Second)}}, 184},
		{"noise of less than the slack is no reason",
			[]policy.Round{{Quiet: times(ms/10, 20), Beside: times(ms, 20)}}, 115},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := policy.NewYield(policy.YieldOptions{Most: 10_000, Least: 100})
			for _, r := range c.rounds {
				y.Next(r)
			}
			if got := y.Rate(); math.Abs(got-c.want) > 1e-6*c.want {
				t.Errorf("rate is %v, want %v", got, c.want)
			}
		})
	}
}

func repeat(r policy.Round, n int) []policy.Round {
	out := make([]policy.Round, n)
	for i := range out {
		out[i] = policy.Round{Quiet: append([]time.Duration(nil), r.Quiet...)}
	}
	return out
}
