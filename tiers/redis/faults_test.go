package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/redis"
)

// R4 of the fault matrix: what Redis answers when it will not do as told is counted by its class, and is one
// line that says what to do.

func wantFailure(t *testing.T, tier *redis.Tier, err error, class redis.Class) {
	t.Helper()
	if !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("%v; want ErrUnavailable", err)
		return
	}
	if tier.Stats().Errors[class] == 0 {
		t.Errorf("%v: counted as %v; want %s", err, tier.Stats().Errors, class)
	}
	if strings.Contains(err.Error(), "\n") || len(err.Error()) > 250 {
		t.Errorf("the error is no short line: %q", err)
	}
}

// TestFullMemory: with noeviction, writes fail. A fact that a job could not take must not leave the job as it
// was: another master would read it.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{Config: []string{"maxmemory-policy noeviction"}})
	tier := open(t, redis.Options{Addrs: []string{node.Address()}})
	kept, grown := jid+"_1", jid+"_2"
	create(t, tier, kept)
	create(t, tier, grown)
	client := raw(t, node)
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if !isHeld(t, tier, kept) {
		t.Error("a job that is held cannot be read")
	}
	_, err := tier.Merge(t.Context(), []job.Fact{ret(grown, "a", 1)})
	wantFailure(t, tier, err, redis.Full)
	if isHeld(t, tier, grown) {
		t.Error("a job is still held without a fact that it did not take")
	}
	if _, err := tier.Head(t.Context(), jid+"_3"); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Head of a job that is not held = %v; want a miss, if without a lease", err)
	}
	if err := tier.Evict(t.Context(), kept); err != nil {
		t.Errorf("Evict = %v; it makes room", err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	create(t, tier, grown)
	if !isHeld(t, tier, grown) {
		t.Error("not held with room again")
	}
}

func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{})
	tier := open(t, redis.Options{Addrs: []string{node.Address()}})
	create(t, tier, jid)
	client := raw(t, node)
	if err := client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := tier.Merge(t.Context(), []job.Fact{publish(jid, 1)})
	wantFailure(t, tier, err, redis.ReadOnly)
	wantFailure(t, tier, tier.Evict(t.Context(), jid), redis.ReadOnly)
	if err := client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	merge(t, tier, publish(jid, 1))
}

// TestPassword: refused, and then not asked again at once; a new password in the file is taken.
func TestPassword(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{Users: []string{"saltern on >right-one ~saltern:* " + rights}})
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong-one")
	now := time.Now()
	var log bytes.Buffer
	o := redis.Options{
		Addrs: []string{node.Address()}, Username: "saltern", PasswordFile: file, Now: func() time.Time { return now },
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	tier := open(t, o)
	for range 20 {
		_, err := tier.Head(t.Context(), jid)
		wantFailure(t, tier, err, redis.Denied)
		if strings.Contains(err.Error(), "wrong-one") {
			t.Fatalf("the password is in the error: %v", err)
		}
	}
	if n := tier.Stats().Errors[redis.Denied]; n != 1 {
		t.Errorf("Redis was asked %d times with a password that it refuses; want 1 in a second", n)
	}
	write("right-one")
	now = now.Add(time.Second)
	create(t, tier, jid)
	if !isHeld(t, tier, jid) {
		t.Error("not held with the right password")
	}

	none := open(t, redis.Options{Addrs: []string{node.Address()}})
	_, err := none.Head(t.Context(), jid)
	wantFailure(t, none, err, redis.Denied)
	if strings.Contains(log.String(), "one") {
		t.Errorf("a password is in the log: %s", log.String())
	}
}

// rights are those that docs/redis.md asks for.
const rights = "+@connection +info +evalsha +eval +get +set +time +del +unlink +exists +hget +hset +hmget +hgetall +hkeys " +
	"+hlen +hexists +hincrby +pexpire +pttl +sadd +scard +expire +xadd +xread +xrevrange"

// clusterRights are what a cluster takes beside these.
const clusterRights = rights + " +cluster|slots"

// TestRights: a user with the rights of docs/redis.md can do everything, and one without is told.
func TestRights(t *testing.T) {
	node := start(t, testbed.RedisOptions{Users: []string{
		"saltern on >secret ~saltern:* " + rights, "reader on >secret ~saltern:* +@connection +info +get",
	}})
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	allWork(t, open(t, redis.Options{Addrs: []string{node.Address()}, Username: "saltern", PasswordFile: file}))
	reader := open(t, redis.Options{Addrs: []string{node.Address()}, Username: "reader", PasswordFile: file})
	_, err := reader.Head(t.Context(), jid)
	wantFailure(t, reader, err, redis.Denied)

	cluster := startCluster(t)
	for _, n := range cluster.Nodes {
		setUser := append([]string{"ACL", "SETUSER", "limited", "on", ">secret", "~saltern:*"}, strings.Fields(clusterRights)...)
		if _, err := n.Command(t.Context(), setUser...); err != nil {
			t.Fatal(err)
		}
	}
	allWork(t, open(t, redis.Options{
		Mode: redis.Cluster, Addrs: cluster.Addresses(), Username: "limited", PasswordFile: file,
	}))
}

// allWork makes every call that there is.
func allWork(t *testing.T, tier *redis.Tier) {
	t.Helper()
	create(t, tier, jid)
	load := publish(jid, 1)
	load.Keep = 7 * 86400
	merge(t, tier, load, job.Minions{JID: jid, IDs: minionIDs(3)}, ret(jid, "a", 2), job.NoCache{JID: jid, Version: 3})
	isHeld(t, tier, jid)
	for _, q := range []tiers.ReturnQuery{{}, {MaxBytes: 1}, {Only: []job.Minion{"a"}}} {
		if page, err := tier.Returns(t.Context(), jid, q); err != nil || len(page.Returns) != 1 {
			t.Errorf("Returns(%+v) = %d returns, %v", q, len(page.Returns), err)
		}
	}
	if err := tier.Evict(t.Context(), jid); err != nil {
		t.Error(err)
	}
	if _, err := tier.Reserve(t.Context(), jid); err != nil {
		t.Error(err)
	}
	if err := tier.ForgetAll(t.Context()); err != nil {
		t.Error(err)
	}
	client := tier.Client() // as the backplane uses it
	add := &goredis.XAddArgs{Stream: "saltern:test:backplane", MaxLen: 10, Approx: true, Values: []any{"a", "b"}}
	if err := client.XAdd(t.Context(), add).Err(); err != nil {
		t.Error(err)
	}
	if err := client.XRead(t.Context(), &goredis.XReadArgs{Streams: []string{add.Stream, "0-0"}}).Err(); err != nil {
		t.Error(err)
	}
	if err := client.XRevRangeN(t.Context(), add.Stream, "+", "-", 1).Err(); err != nil {
		t.Error(err)
	}
	if s := tier.Stats(); len(s.Errors) > 0 {
		t.Errorf("errors: %v", s.Errors)
	}
}

// TestAnswers has what a real Redis only says in moments that are hard to make.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		answer string
		class  redis.Class
	}{
		{"LOADING Redis is loading the dataset in memory", redis.Loading},
		{"CLUSTERDOWN Hash slot not served", redis.ClusterDown},
		{"MASTERDOWN Link with MASTER is down", redis.ClusterDown},
		{"TRYAGAIN Multiple keys request during rehashing of slot", redis.ClusterDown},
		{"MISCONF Redis is configured to save RDB snapshots", redis.Refused},
		{"ERR max number of clients reached", redis.Refused},
		{"ERR something new", redis.Refused},
		{"BUSY Redis is busy running a script", redis.Refused},
		{"OOM command not allowed when used memory > 'maxmemory'.", redis.Full},
		{"READONLY You can't write against a read only replica.", redis.ReadOnly},
		{"NOAUTH Authentication required.", redis.Denied},
		{"WRONGPASS invalid username-password pair or user is disabled.", redis.Denied},
		{"NOPERM this user has no permissions to run the 'evalsha' command", redis.Denied},
	} {
		tier := open(t, redis.Options{Addrs: []string{answering(t, c.answer)}})
		_, err := tier.Head(t.Context(), jid)
		wantFailure(t, tier, err, c.class)
		if s := tier.Stats(); s.Misses != 0 {
			t.Errorf("%s: counted as a miss", c.answer)
		}
	}
}

// answering listens and answers everything with one error. It gives the address.
func answering(t *testing.T, text string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					// One answer for each command: each begins with an array.
					for range bytes.Count(buffer[:n], []byte("*")) {
						if _, err := fmt.Fprintf(conn, "-%s\r\n", text); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// TestTinyMemory is R5: Redis evicts whatever it likes while jobs are filled and read. What it gives is whole.
func TestTinyMemory(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "allkeys-random"} {
		t.Run(policy, func(t *testing.T) {
			node := start(t, testbed.RedisOptions{Config: []string{"maxmemory 2mb", "maxmemory-policy " + policy}})
			hits := tinyMemory(t, open(t, redis.Options{Addrs: []string{node.Address()}}))
			info, err := node.Command(t.Context(), "INFO", "stats")
			if err != nil || strings.Contains(info, "evicted_keys:0\r\n") {
				t.Errorf("nothing was evicted (%v): the test tests nothing", err)
			}
			if hits == 0 {
				t.Error("nothing was held: the test tests nothing")
			}
		})
	}
}

func tinyMemory(t *testing.T, tier *redis.Tier) (hits int) {
	const jobs, each = 1000, 10
	for i := range jobs {
		name := job.JID(fmt.Sprintf("%s_%d", jid, i))
		var returns []job.Return
		for j, m := range minionIDs(each) {
			r := ret(name, m, j+1)
			r.Ret = []byte(strings.Repeat(fmt.Sprint(i, j), 30))
			returns = append(returns, r)
		}
		fill(t, tier, tiers.Snapshot{Head: job.Head{JID: name}, Returns: returns[:each/2], HasReturns: true})
		merge(t, tier, asFacts(returns[each/2:])...)
		earlier := job.JID(fmt.Sprintf("%s_%d", jid, i-i%97))
		page, err := tier.Returns(t.Context(), earlier, tiers.ReturnQuery{})
		if err != nil && !errors.Is(err, tiers.ErrNotFound) {
			t.Fatalf("Returns = %v", err)
		}
		if err != nil {
			continue
		}
		hits++
		if len(page.Returns) != each {
			t.Fatalf("%d of %d returns of a job", len(page.Returns), each)
		}
	}
	return hits
}

func asFacts(returns []job.Return) []job.Fact {
	facts := make([]job.Fact, len(returns))
	for i, r := range returns {
		facts[i] = r
	}
	return facts
}

// TestSpoiled is R6: whatever is under our keys, it is a miss, deleted and counted, and never served.
func TestSpoiled(t *testing.T) {
	o := defaults(redis.Options{Logger: slog.New(slog.DiscardHandler)})
	tier, other := open(t, o), open(t, o)
	client := raw(t, shared)
	load := publish(jid, 1)
	r := ret(jid, "a", 2)
	s := tiers.Snapshot{
		Head: job.Head{
			JID: jid, Load: &load, Minions: minionIDs(3), EndTime: &job.EndTime{JID: jid, Version: 3, Text: "now"},
			NoCache: &job.NoCache{JID: jid, Version: 4},
		},
		Returns: []job.Return{r, ret(jid, "b", 5)}, HasReturns: true,
	}
	key := func(kind string) string {
		keys, err := client.Keys(t.Context(), "saltern:"+o.Namespace+":*{"+string(jid)+"}"+kind).Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("keys of %s: %q, %v", kind, keys, err)
		}
		return keys[0]
	}
	spoil := func(name string, how func() error) {
		t.Helper()
		if err := tier.Evict(t.Context(), jid); err != nil {
			t.Fatal(err)
		}
		fill(t, tier, s)
		if err := how(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before := tier.Stats().Corrupt
		_, errHead := tier.Head(t.Context(), jid)
		_, errReturns := tier.Returns(t.Context(), jid, tiers.ReturnQuery{})
		if errHead == nil && errReturns == nil {
			t.Errorf("%s: served", name)
		}
		for _, err := range []error{errHead, errReturns} {
			if err != nil && !errors.Is(err, tiers.ErrNotFound) {
				t.Errorf("%s: %v; want a miss", name, err)
			}
		}
		if n := tier.Stats().Corrupt - before; n != 1 {
			t.Errorf("%s: counted %d times; want 1", name, n)
		}
		if isHeld(t, other, jid) {
			t.Errorf("%s: still there for another client", name)
		}
	}
	set := func(kind, field, value string) func() error {
		return func() error { return client.HSet(t.Context(), key(kind), field, value).Err() }
	}
	get := func(kind, field string) string {
		fill(t, tier, s)
		v, err := client.HGet(t.Context(), key(kind), field).Result()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	flipped := func(v string, i int) string {
		b := []byte(v)
		b[i] ^= 1
		return string(b)
	}
	fill(t, tier, s)
	minionList := ""
	fields, err := client.HKeys(t.Context(), key("h")).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		if strings.HasPrefix(f, "m") {
			minionList = f
		}
	}
	for _, place := range []struct{ kind, field string }{
		{"h", "l"}, {"h", "e"}, {"h", "n"}, {"h", minionList}, {"r", "a"},
	} {
		whole := get(place.kind, place.field)
		for _, v := range []string{"", "x", "garbage that is long enough to be one", whole[:len(whole)-1], whole + "x"} {
			spoil(fmt.Sprintf("%q = %.20q", place.field, v), set(place.kind, place.field, v))
		}
		for i := 9; i < len(whole); i += 7 {
			spoil(fmt.Sprintf("%q with bit %d flipped", place.field, 8*i), set(place.kind, place.field, flipped(whole, i)))
		}
	}
	spoil("rank", set("h", "l", flipped(get("h", "l"), 0)))
	spoil("a fact of another kind", set("h", "l", get("h", "e")))
	spoil("a fact of another minion", set("r", "a", get("r", "b")))
	spoil("a fact of another job", set("r", "a", func() string {
		fill(t, tier, tiers.Snapshot{Head: job.Head{JID: jid + "_9"}, Returns: []job.Return{ret(jid+"_9", "a", 1)}, HasReturns: true})
		keys, _ := client.Keys(t.Context(), "saltern:"+o.Namespace+":*{"+string(jid)+"_9}r").Result()
		return client.HGet(t.Context(), keys[0], "a").Val()
	}()))
	spoil("foreign field", set("h", "hello", "world"))
	spoil("empty field", set("h", "", ""))
	spoil("layout of the head", set("h", "c", "2"))
	spoil("layout of the returns", set("r", "\x00", "2"))
	spoil("no mark of the head", func() error { return client.HDel(t.Context(), key("h"), "c").Err() })
	spoil("no mark of the returns", func() error { return client.HDel(t.Context(), key("r"), "\x00").Err() })
	for _, kind := range []string{"h", "r"} {
		spoil("a string for "+kind, func() error { return client.Set(t.Context(), key(kind), "hello", 0).Err() })
		spoil("a list for "+kind, func() error {
			k := key(kind)
			return errors.Join(client.Del(t.Context(), k).Err(), client.LPush(t.Context(), k, "hello").Err())
		})
	}
}

// TestSpoiledBeforeMerge: a fact does not settle beside what cannot be right.
func TestSpoiledBeforeMerge(t *testing.T) {
	o := defaults(redis.Options{Logger: slog.New(slog.DiscardHandler)})
	tier := open(t, o)
	client := raw(t, shared)
	for i, how := range []func(key string) error{
		func(key string) error { return client.HSet(t.Context(), key, "l", "garbage").Err() },
		func(key string) error { return client.HSet(t.Context(), key, "c", "2").Err() },
		func(key string) error { return client.Set(t.Context(), key, "garbage", 0).Err() },
	} {
		name := job.JID(fmt.Sprintf("%s_%d", jid, i))
		load := publish(name, 1)
		fill(t, tier, tiers.Snapshot{Head: job.Head{JID: name, Load: &load}, HasReturns: true})
		keys, err := client.Keys(t.Context(), "saltern:"+o.Namespace+":*{"+string(name)+"}h").Result()
		if err != nil || len(keys) != 1 {
			t.Fatal(keys, err)
		}
		if err := how(keys[0]); err != nil {
			t.Fatal(err)
		}
		l := publish(name, 2)
		l.Rank = job.RankReturn
		merge(t, tier, l)
		if isHeld(t, tier, name) {
			t.Errorf("case %d: held after a merge into garbage", i)
		}
	}
}

// TestHungAndBack is R2: what was asked meanwhile fails, and what is asked after is right.
func TestHungAndBack(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{})
	tier := open(t, redis.Options{
		Addrs: []string{node.Address()}, ReadTimeout: 100 * time.Millisecond, DialTimeout: 100 * time.Millisecond,
		PoolTimeout: 100 * time.Millisecond, PoolSize: 4,
	})
	const jobs = 20
	name := func(i int) job.JID { return job.JID(fmt.Sprintf("%s_%d", jid, i)) }
	settle := func() {
		for i := range jobs {
			load := publish(name(i), i+1)
			err := tier.Fill(t.Context(), tiers.Snapshot{Head: job.Head{JID: name(i), Load: &load}, HasReturns: true})
			for err != nil && t.Context().Err() == nil { // a busy machine
				err = tier.Fill(t.Context(), tiers.Snapshot{Head: job.Head{JID: name(i), Load: &load}, HasReturns: true})
			}
		}
	}
	settle()
	if err := node.Hang(); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, jobs)
	for i := range jobs {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := tier.Head(ctx, name(i))
			errs <- err
		}()
	}
	for range jobs {
		if err := <-errs; !errors.Is(err, tiers.ErrTimeout) && !errors.Is(err, tiers.ErrUnavailable) {
			t.Errorf("Head of a Redis that hangs = %v", err)
		}
	}
	if err := node.Continue(); err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		h, err := tier.Head(t.Context(), name(i))
		for err != nil && !errors.Is(err, tiers.ErrNotFound) && t.Context().Err() == nil {
			h, err = tier.Head(t.Context(), name(i))
		}
		if err != nil || h.Load == nil || h.Load.Version != version(i+1) {
			t.Errorf("Head(%q) = %+v, %v; want its own load", name(i), h, err)
		}
	}
}
