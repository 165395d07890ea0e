package cassandra

// Every statement but those of the schema. Each binds the whole partition key, so that the driver knows which nodes
// have it; a test asks the driver. None has literals, so that each is prepared once.
const (
	insertHead      = `INSERT INTO heads (jid, kind, name, data) VALUES (?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`
	selectHead      = `SELECT kind, name, data FROM heads WHERE jid = ?`
	selectHeadKind  = `SELECT kind, name, data FROM heads WHERE jid = ? AND kind = ?`
	selectHeadTimes = `SELECT kind, name, writetime(data) FROM heads WHERE jid = ?`

	insertReturn       = `INSERT INTO returns (jid, bucket, minion, version, digest, head, body) VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`
	selectReturns      = `SELECT minion, version, digest, head, body FROM returns WHERE jid = ? AND bucket = ?`
	selectReturnsAfter = `SELECT minion, version, digest, head, body FROM returns WHERE jid = ? AND bucket = ? AND minion > ?`
	selectReturnsOnly  = `SELECT minion, version, digest, head, body FROM returns WHERE jid = ? AND bucket = ? AND minion IN ?`
	selectHeaders      = `SELECT minion, version, digest, head FROM returns WHERE jid = ? AND bucket = ?`
	selectHeadersAfter = `SELECT minion, version, digest, head FROM returns WHERE jid = ? AND bucket = ? AND minion > ?`
	selectHeadersOnly  = `SELECT minion, version, digest, head FROM returns WHERE jid = ? AND bucket = ? AND minion IN ?`
	selectVersions     = `SELECT minion, version FROM returns WHERE jid = ? AND bucket = ?`

	insertChunk  = `INSERT INTO chunks (owner, name, version, n, data) VALUES (?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`
	selectChunks = `SELECT n, data FROM chunks WHERE owner = ? AND name = ? AND version = ?`

	insertMark      = `INSERT INTO jobs_by_day (day, shard, at, jid, class, changed) VALUES (?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`
	insertSummary   = `INSERT INTO jobs_by_day (day, shard, at, jid, class, summary) VALUES (?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`
	selectDay       = `SELECT at, jid, changed, summary FROM jobs_by_day WHERE day = ? AND shard = ? AND (at) >= (?) AND (at, jid) < (?, ?)`
	selectListed    = `SELECT changed, summary FROM jobs_by_day WHERE day = ? AND shard = ? AND at = ? AND jid = ?`
	insertMinionJob = `INSERT INTO jobs_by_minion (day, shard, minion, at, jid, class) VALUES (?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`

	selectMinionJobs = `SELECT at, jid FROM jobs_by_minion WHERE day = ? AND shard = ? AND minion = ? AND (at) >= (?) AND (at, jid) < (?, ?)`

	insertDay  = `INSERT INTO days (kind, day, class) VALUES (?, ?, ?) USING TTL ? AND TIMESTAMP ?`
	selectDays = `SELECT day FROM days WHERE kind = ? AND day >= ? AND day <= ?`

	insertLast = `INSERT INTO last_functions (shard, minion, class, data) VALUES (?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`
	updateSeen = `UPDATE last_functions USING TTL ? AND TIMESTAMP ? SET seen = ? WHERE shard = ? AND minion = ? AND class = ?`
	selectLast = `SELECT minion, data, seen FROM last_functions WHERE shard = ?`

	insertEvent        = `INSERT INTO events (master, slot, id, version, data) VALUES (?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`
	selectNewestEvents = `SELECT id, version, data FROM events WHERE master = ? AND slot = ? AND id >= ? AND id <= ? ORDER BY id DESC`
	selectOldestEvents = `SELECT id, version, data FROM events WHERE master = ? AND slot = ? AND id >= ? AND id <= ? ORDER BY id ASC`
	insertSlot         = `INSERT INTO event_slots (day, slot, master) VALUES (?, ?, ?) USING TTL ? AND TIMESTAMP ?`
	selectSlots        = `SELECT slot, master FROM event_slots WHERE day = ?`

	insertRegister = `INSERT INTO registers (master, data) VALUES (?, ?) USING TIMESTAMP ?`
	selectRegister = `SELECT data FROM registers WHERE master = ?`
)
