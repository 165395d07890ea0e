package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"saltern/tiers"
)

// logLevel says from which level on is logged, and changes it where one is given.
func (s *RPC) logLevel(ctx context.Context, out []byte, p *params) ([]byte, error) {
	word := p.str("level")
	if err := p.done(); err != nil {
		return out, err
	}
	if s.o.LogLevel == nil {
		return out, fmt.Errorf("%w: the level of the log cannot be changed here", tiers.ErrInvalid)
	}
	if word != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(word)); err != nil {
			return out, fmt.Errorf("%w: level %q; debug, info, warn or error is needed", tiers.ErrInvalid, clip(word))
		}
		was := s.o.LogLevel.Level()
		s.o.LogLevel.Set(level)
		// Above every level: it is to be found afterwards, whatever is logged.
		s.o.Logger.Log(ctx, max(level, slog.LevelInfo), "the level of the log was changed", "from", was.String(), "to", level.String())
	}
	return msgp.AppendString(out, strings.ToLower(s.o.LogLevel.Level().String())), nil
}
