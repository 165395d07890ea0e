package cassandra

import (
	"log/slog"
	"sync"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"
)

// driverLog gives the driver's log to slog, one level lower: what the driver warns of (a node that went away)
// the store says in its own words. What it says with every attempt to reach a node is said once a minute.
type driverLog struct {
	to   *slog.Logger
	said *sync.Map // message → time of the last one
}

// sayAgain is after what time an error is logged again.
const sayAgain = time.Minute

func (l driverLog) Error(msg string, fields ...gocql.LogField) {
	now := time.Now()
	if last, said := l.said.Load(msg); said && now.Sub(last.(time.Time)) < sayAgain {
		l.to.Debug("driver: "+msg, attrs(fields)...)
		return
	}
	l.said.Store(msg, now)
	l.to.Warn("driver: "+msg, attrs(fields)...)
}

func (l driverLog) Warning(msg string, fields ...gocql.LogField) {
	l.to.Debug("driver: "+msg, attrs(fields)...)
}
func (l driverLog) Info(msg string, fields ...gocql.LogField) {
	l.to.Debug("driver: "+msg, attrs(fields)...)
}
func (l driverLog) Debug(string, ...gocql.LogField) {}

func attrs(fields []gocql.LogField) []any {
	args := make([]any, 0, 2*len(fields))
	for _, f := range fields {
		args = append(args, f.Name, f.Value.String())
	}
	return args
}
