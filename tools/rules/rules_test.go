// Package rules checks the alert rules and the dashboard of configs/ with Prometheus' own parsers, against the
// metrics that there are. It is a module of its own, so that who builds Saltern does not fetch Prometheus.
package rules

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// metric is what docs/metrics.md says of a metric; a test of cli holds it to what there is.
type metric struct {
	kind   string
	labels []string
}

func metrics(t *testing.T) map[string]metric {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]metric)
	for _, row := range regexp.MustCompile("(?m)^\\| `(saltern_\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		m := metric{kind: row[2]}
		if names := strings.TrimSpace(row[3]); names != "" {
			m.labels = strings.Split(names, ", ")
		}
		if m.kind == "histogram" {
			for _, suffix := range []string{"_sum", "_count"} {
				all[row[1]+suffix] = m
			}
			all[row[1]+"_bucket"] = metric{m.kind, append(slices.Clone(m.labels), "le")}
			continue
		}
		all[row[1]] = m
	}
	if len(all) < 20 {
		t.Fatalf("%d metrics were read from docs/metrics.md", len(all))
	}
	return all
}

// check parses an expression and sees to it that it asks for what there is: metrics, their labels, and rates of
// counters alone.
func check(all map[string]metric, expr string) []string {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	parser.Inspect(tree, func(n parser.Node, path []parser.Node) error {
		s, is := n.(*parser.VectorSelector)
		if !is || !strings.HasPrefix(s.Name, "saltern") {
			return nil
		}
		m, there := all[s.Name]
		if !there {
			faults = append(faults, "there is no metric "+s.Name)
			return nil
		}
		for _, l := range s.LabelMatchers {
			if l.Name != labels.MetricName && l.Name != "instance" && !slices.Contains(m.labels, l.Name) {
				faults = append(faults, fmt.Sprintf("%s has no label %s", s.Name, l.Name))
			}
		}
		for _, p := range path {
			if c, is := p.(*parser.Call); is && (c.Func.Name == "rate" || c.Func.Name == "increase") && m.kind == "gauge" {
				faults = append(faults, "the rate of a gauge: "+s.Name)
			}
		}
		return nil
	})
	return faults
}

func TestAlertRules(t *testing.T) {
	all := metrics(t)
	groups, errs := rulefmt.ParseFile("../../configs/prometheus/saltern.rules.yml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) == 0 {
		t.Fatal("there are no rules")
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			for _, fault := range check(all, r.Expr) {
				t.Errorf("%s%s: %s", r.Alert, r.Record, fault)
			}
			if r.Alert != "" && (r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "") {
				t.Errorf("%s says too little: severity, summary and description are needed", r.Alert)
			}
		}
	}
}

func TestDashboard(t *testing.T) {
	all := metrics(t)
	text, err := os.ReadFile("../../configs/grafana/saltern.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	// What Grafana puts in.
	grafana := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	for _, p := range board.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
		for _, q := range p.Targets {
			for _, fault := range check(all, grafana.Replace(q.Expr)) {
				t.Errorf("%q: %s", p.Title, fault)
			}
		}
	}
}

// TestCheckFindsFaults: the check itself finds what it is there for.
func TestCheckFindsFaults(t *testing.T) {
	all := metrics(t)
	for _, expr := range []string{
		"saltern_no_such_metric > 0", `saltern_write_acks_total{tier="redis"}`, "rate(saltern_memory_bytes[5m])", "rate(",
	} {
		if len(check(all, expr)) == 0 {
			t.Errorf("nothing is wrong with %s", expr)
		}
	}
}
