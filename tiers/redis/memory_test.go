package redis_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/redis"
)

// TestMemory compares what highstates of 20 minions take here and in the keys of saltext-redis 1.0.2: a JSON of
// the load, in which each return becomes the load, a hash with a JSON a minion, and what each minion did last.
// With SALTERN_LONG=1 it is 1,000 jobs; the figures are in docs/redis.md.
func TestMemory(t *testing.T) {
	t.Parallel()
	jobs, minions := 20, 20
	if os.Getenv("SALTERN_LONG") == "1" {
		jobs = 1000
	}
	theirs := start(t, testbed.RedisOptions{Name: "theirs"})
	ours := start(t, testbed.RedisOptions{Name: "ours"})
	tier := open(t, redis.Options{Addrs: []string{ours.Address()}})
	client := raw(t, theirs)
	create(t, tier, "warm-up") // connections, scripts and the generation are not what is measured
	client.Ping(t.Context())
	emptyTheirs, emptyOurs := usedMemory(t, theirs), usedMemory(t, ours)

	random := rand.New(rand.NewPCG(1, 2))
	var rawBytes, together int
	for i := range jobs {
		id := job.NewJID(base.Add(time.Duration(i) * time.Minute))
		load := publish(id, 1)
		load.Fun, load.Payload = "state.highstate", packed(t, map[string]any{
			"jid": string(id), "fun": "state.highstate", "arg": []any{}, "tgt": "*", "tgt_type": "glob", "user": "root",
			"cmd": "publish", "ret": "", "id": "master",
		})
		ids := minionIDs(minions)
		snapshot := tiers.Snapshot{Head: job.Head{JID: id, Load: &load, Minions: ids}, HasReturns: true}
		var all []byte
		var last []byte
		for j, m := range ids {
			states := highstate(random, 30)
			full := map[string]any{
				"cmd": "_return", "id": string(m), "success": true, "return": states, "retcode": 0, "jid": string(id),
				"fun": "state.highstate", "fun_args": []any{}, "out": "highstate", "_stamp": "2026-12-01T12:00:03.123456",
			}
			text, err := json.Marshal(full)
			if err != nil {
				t.Fatal(err)
			}
			last = text
			pipe := client.Pipeline()
			pipe.HSet(t.Context(), "ret:"+string(id), string(m), text)
			pipe.Expire(t.Context(), "ret:"+string(id), 24*time.Hour)
			pipe.Set(t.Context(), string(m)+":state.highstate", string(id), 0)
			pipe.SAdd(t.Context(), "minions", string(m))
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := ret(id, m, j+1)
			zero, yes := int64(0), true
			r.Fun, r.RetCode, r.Success, r.Ret = "state.highstate", &zero, &yes, packed(t, states)
			r.Rest = packed(t, map[string]any{
				"cmd": "_return", "id": string(m), "success": true, "retcode": 0, "jid": string(id),
				"fun": "state.highstate", "fun_args": []any{}, "out": "highstate",
			})
			r.Times = packed(t, map[string]any{"_stamp": "2026-12-01T12:00:03.123456"})
			snapshot.Returns = append(snapshot.Returns, r)
			rawBytes += len(r.Ret)
			all = append(all, r.Ret...)
		}
		if err := client.Set(t.Context(), "load:"+string(id), last, 24*time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		fill(t, tier, snapshot)
		together += len(job.Seal(1, all))
	}
	their, our := usedMemory(t, theirs)-emptyTheirs, usedMemory(t, ours)-emptyOurs
	t.Logf("%d jobs of %d minions, %d bytes a return as MessagePack", jobs, minions, rawBytes/jobs/minions)
	t.Logf("saltext-redis %.1f MiB, saltern %.2f MiB: %.1f %%", mib(their), mib(our), 100*float64(our)/float64(their))
	t.Logf("were all returns of a job compressed as one: %.2f MiB and overhead", mib(together))
	if our*4 > their {
		t.Errorf("saltern takes %.2f MiB; want at most a quarter of %.2f MiB", mib(our), mib(their))
	}
}

func mib(n int) float64 { return float64(n) / (1 << 20) }

// usedMemory is what the data takes, without the buffers of connections.
func usedMemory(t *testing.T, node *testbed.Redis) int {
	t.Helper()
	info, err := node.Command(t.Context(), "INFO", "memory")
	if err != nil {
		t.Fatal(err)
	}
	var used, startup, clients int
	for _, line := range splitLines(info) {
		_, _ = fmt.Sscanf(line, "used_memory:%d", &used)
		_, _ = fmt.Sscanf(line, "used_memory_startup:%d", &startup)
		_, _ = fmt.Sscanf(line, "mem_clients_normal:%d", &clients)
	}
	return used - startup - clients
}

func packed(t *testing.T, v any) []byte {
	t.Helper()
	b, err := msgp.AppendIntf(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// highstate is a return of that many states, each of some 500 bytes as JSON: half of them files of which one in
// five changed, with a hash and a line of a diff that are like nothing else.
func highstate(random *rand.Rand, states int) map[string]any {
	all := make(map[string]any, states)
	for i := range states {
		name, key, changes := "", "", map[string]any{}
		comment := ""
		switch i % 4 {
		case 0, 1:
			name = fmt.Sprintf("/etc/app/conf.d/%02d-service.conf", i)
			key = fmt.Sprintf("file_|-app-config-%02d_|-%s_|-managed", i, name)
			comment = fmt.Sprintf("File %s is in the correct state", name)
			if random.IntN(5) == 0 {
				comment = fmt.Sprintf("File %s updated", name)
				changes["diff"] = fmt.Sprintf("--- \n+++ \n@@ -1,3 +1,3 @@\n-token = %016x\n+token = %016x\n", random.Uint64(), random.Uint64())
			}
		case 2:
			name = fmt.Sprintf("package-%02d", i)
			key = fmt.Sprintf("pkg_|-base-packages-%02d_|-%s_|-installed", i, name)
			comment = "All specified packages are already installed"
		default:
			name = fmt.Sprintf("service-%02d", i)
			key = fmt.Sprintf("service_|-running-%02d_|-%s_|-running", i, name)
			comment = fmt.Sprintf("The service %s is already running", name)
		}
		all[key] = map[string]any{
			"name": name, "changes": changes, "result": true, "comment": comment, "__sls__": "roles.app.config",
			"__run_num__": i, "start_time": fmt.Sprintf("12:00:%02d.%06d", random.IntN(60), random.IntN(1000000)),
			"duration": float64(random.IntN(100000)) / 1000, "__id__": fmt.Sprintf("app-config-%02d", i),
			"__saltfunc__": "state.managed",
		}
	}
	return all
}
