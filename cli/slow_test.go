package cli_test

import (
	"strings"
	"testing"

	"saltern/cli"
)

// TestExplainSaysWhereAJobIs: each tier that holds a job says so, and looking changes nothing: a second look
// gives the same.
func TestExplainSaysWhereAJobIs(t *testing.T) {
	d := serve(t)
	d.publish(t, "20270105120000000000", "test.ping", "*", "root", nil, "a", "b")
	d.giveBack(t, "20270105120000000000", "a", "test.ping", 0, true)
	type tier struct {
		Tier, Answer string
		Returns      *int
		Bytes        *int64
	}
	var first, second struct{ Tiers []tier }
	saltern(t, "explain", "20270105120000000000", "--http", d.http, "--json").wantCode(t, cli.ExitOK).json(t, &first)
	saltern(t, "explain", "--json", "--http", d.http, "20270105120000000000").wantCode(t, cli.ExitOK).json(t, &second)
	if len(first.Tiers) != 2 || first.Tiers[0].Tier != "memory" || first.Tiers[1].Tier != "embedded" {
		t.Fatalf("the tiers are %+v; want memory and embedded", first.Tiers)
	}
	for i, x := range first.Tiers {
		if x.Answer != "hit" || x.Bytes == nil || *x.Bytes != *second.Tiers[i].Bytes {
			t.Errorf("%s says %+v, then %+v; want the same hit", x.Tier, x, second.Tiers[i])
		}
	}
	if n := first.Tiers[0].Returns; n == nil || *n != 1 {
		t.Errorf("memory holds the returns %v; want 1", n)
	}
	table := saltern(t, "explain", "20270105120000000001", "--http", d.http).wantCode(t, cli.ExitOK).stdout
	wantContains(t, table, "TIER", "memory", "miss", "embedded", "absent", "trace ")
}

// TestSlowShowsSlowCalls: what is slow is in the list, with the tiers that were asked and when.
func TestSlowShowsSlowCalls(t *testing.T) {
	d := serveWith(t, "traces:\n  slow: 1ns\n")
	d.call(t, "get_load", "20270105120000000002")
	list := saltern(t, "slow", "--http", d.http).wantCode(t, cli.ExitOK).stdout
	wantContains(t, list, "METHOD", "get_load", "20270105120000000002", "slow", "memory miss, embedded miss ")
	bars := saltern(t, "slow", "--waterfall", "--method", "get_load", "--http", d.http).wantCode(t, cli.ExitOK).stdout
	wantContains(t, bars, "get_load", "  head absent", "    embedded miss", "|====")
	var doc struct {
		Calls []struct {
			Method, JID, Trace string
			Took               float64 `json:"took_ms"`
		}
	}
	saltern(t, "slow", "--json", "--limit", "1", "--latest", "--http", d.http).wantCode(t, cli.ExitOK).json(t, &doc)
	if len(doc.Calls) != 1 || doc.Calls[0].Method == "" || doc.Calls[0].Took <= 0 || len(doc.Calls[0].Trace) != 32 {
		t.Errorf("the document has %+v; want one call", doc.Calls)
	}
	if other := saltern(t, "slow", "--method", "save_reg", "--http", d.http).wantCode(t, cli.ExitOK).stdout; !strings.Contains(other, "no slow calls") {
		t.Errorf("of another method there is\n%s", other)
	}
}
