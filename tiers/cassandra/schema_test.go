package cassandra_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/cassandra"
)

// TestSchemaIsNotMadeInSilence: without tables the store says what to do, and works as soon as it was done.
func TestSchemaIsNotMadeInSilence(t *testing.T) {
	o := ownOptions(t)
	o.CreateSchema = false
	s, err := cassandra.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	await(t, 30*time.Second, func() error {
		if err := s.Ready(); errors.Is(err, cassandra.ErrSchema) {
			return nil
		}
		return errors.New("it does not say that the schema is missing")
	})
	err = s.Ready()
	if !errors.Is(err, tiers.ErrUnavailable) || !strings.Contains(err.Error(), "saltern schema apply") {
		t.Errorf("Ready = %v; want ErrUnavailable and what to do", err)
	}
	if err := cassandra.CheckSchema(t.Context(), o); !errors.Is(err, cassandra.ErrSchema) {
		t.Errorf("CheckSchema = %v; want ErrSchema", err)
	}
	if err := cassandra.ApplySchema(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := cassandra.ApplySchema(t.Context(), o); err != nil {
		t.Errorf("a second ApplySchema = %v", err)
	}
	if err := cassandra.CheckSchema(t.Context(), o); err != nil {
		t.Errorf("CheckSchema after ApplySchema = %v", err)
	}
	awaitReady(t, s, 30*time.Second)
	jid := newJID()
	merge(t, s, publish(jid, 86400))
}

// TestOlderSchemaIsRefused: a daemon that is newer than the tables does not guess.
func TestOlderSchemaIsRefused(t *testing.T) {
	o := ownOptions(t)
	if err := cassandra.ApplySchema(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	session := bare(t, o)
	run := func(cql string) {
		t.Helper()
		if err := session.Query(cql).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	run("TRUNCATE schema_version")
	run("INSERT INTO schema_version (id, version) VALUES (0, 0)")
	o.CreateSchema = false
	if err := cassandra.CheckSchema(t.Context(), o); !errors.Is(err, cassandra.ErrSchema) {
		t.Errorf("CheckSchema of an older version = %v; want ErrSchema", err)
	}
	// A newer one only has more: versions run beside each other while a cluster is upgraded.
	run("INSERT INTO schema_version (id, version) VALUES (0, 99)")
	if err := cassandra.CheckSchema(t.Context(), o); err != nil {
		t.Errorf("CheckSchema of a newer version = %v", err)
	}
}

// TestSchemaHasNoTraps: what Cassandra's users regret is not in the tables.
func TestSchemaHasNoTraps(t *testing.T) {
	cql, err := cassandra.Schema(cassandra.Options{Hosts: []string{"h"}, Datacenter: "d'c", EventKeep: 7 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(cql, ";\n")
	for _, trap := range []string{"INDEX", "ALLOW FILTERING", "set<", "list<", "map<", "counter", "IF EXISTS", "MATERIALIZED", "%[", "%!"} {
		if strings.Contains(all, trap) {
			t.Errorf("the schema has %q", trap)
		}
	}
	for _, part := range []string{"'d''c': 3", "'compaction_window_size': 1}", "'compaction_window_size': 5}", "TimeWindowCompactionStrategy"} {
		if !strings.Contains(all, part) {
			t.Errorf("the schema does not have %q:\n%s", part, all)
		}
	}
}

// TestConnections: user, password and TLS are really used.
func TestConnections(t *testing.T) {
	c := own(t)
	base := options(t)
	if err := cassandra.ApplySchema(t.Context(), base); err != nil {
		t.Fatal(err)
	}
	base.CreateSchema = false
	for _, c := range []struct {
		name   string
		change func(*cassandra.Options)
		works  bool
	}{
		{"TLS", func(o *cassandra.Options) { o.TLS = &cassandra.TLS{CAFile: c.CA} }, true},
		{"TLS with another name", func(o *cassandra.Options) { o.TLS = &cassandra.TLS{CAFile: c.CA, ServerName: "elsewhere"} }, false},
		{"TLS with authorities of the system", func(o *cassandra.Options) { o.TLS = &cassandra.TLS{} }, false},
		{"TLS with a file that is none", func(o *cassandra.Options) { o.TLS = &cassandra.TLS{CAFile: o.PasswordFile} }, false},
		{"another password", func(o *cassandra.Options) { o.PasswordFile = passwordFile(t, "wrong") }, false},
		{"nobody", func(o *cassandra.Options) { o.User, o.PasswordFile = "", "" }, false},
		{"its data centre", func(o *cassandra.Options) { o.Datacenter = "datacenter1" }, true},
		{"hedged", func(o *cassandra.Options) { o.HedgeAfter = time.Millisecond }, true},
		{"other consistency", func(o *cassandra.Options) { o.ReadConsistency, o.WriteConsistency = "ONE", "ALL" }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := base
			c.change(&o)
			if !c.works {
				err := cassandra.CheckSchema(t.Context(), o)
				if err == nil || errors.Is(err, cassandra.ErrSchema) {
					t.Errorf("CheckSchema = %v; want that it cannot connect", err)
				}
				if err != nil && strings.Contains(err.Error(), "wrong") {
					t.Error("the password is in the error")
				}
				return
			}
			s := open(t, o)
			jid := newJID()
			merge(t, s, publish(jid, 86400), job.EndTime{JID: jid, Version: clock.Next(), Text: "t"})
			if h, err := s.Head(t.Context(), jid); err != nil || h.EndTime == nil {
				t.Errorf("Head = %+v, %v", h, err)
			}
		})
	}
}
