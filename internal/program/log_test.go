package program

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"testing/slogtest"
)

func TestLogHandler(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return (&Flags{}).logHandler(&out)
	}, func(t *testing.T) map[string]any {
		t.Helper()
		line := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return line
	})
}

// TestAttributesAreFormattedLate checks that a logger formats its attributes only when it writes a
// record.
func TestAttributesAreFormattedLate(t *testing.T) {
	formatted := 0
	log := slog.New((&Flags{}).logHandler(io.Discard)).With("object", marshaler(func() { formatted++ }))
	if log.Debug("nobody reads this"); formatted != 0 {
		t.Error("an attribute is formatted for nothing")
	}
	if log.Info("somebody reads this"); formatted != 1 {
		t.Errorf("an attribute is formatted %d times", formatted)
	}
}

// marshaler is called when a handler formats it.
type marshaler func()

func (m marshaler) MarshalJSON() ([]byte, error) {
	m()
	return []byte(`""`), nil
}
