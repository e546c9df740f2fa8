package providertest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// window is a length in bytes. No output may contain a piece of a secret that is this long.
const window = 16

// scan passes each value that the test saw to the function prints. None of the texts that prints
// returns may contain a piece of a secret.
func (b *bench) scan(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	pieces := map[string]bool{}
	for _, secret := range b.secrets {
		for _, form := range []string{secret, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret))} {
			for i := 0; i+window <= len(form); i++ {
				pieces[form[i:i+window]] = true
			}
		}
	}
	if len(pieces) == 0 && len(b.seen) > 0 {
		t.Log("nothing secret was made")
	}
	printed := map[string]bool{}
	for _, value := range b.seen {
		for _, text := range prints(value) {
			if printed[text] {
				continue
			}
			printed[text] = true
			for i := 0; i+window <= len(text); i++ {
				if pieces[text[i:i+window]] {
					t.Errorf("a piece of a secret is printed by a %T", value) // do not print the piece
					break
				}
			}
		}
	}
}

// prints returns all texts that programs may print for the value. For an error it also prints each
// cause separately.
func prints(value any) []string {
	if value == nil {
		return nil
	}
	var texts []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
		texts = append(texts, fmt.Sprintf(verb, value))
	}
	if data, err := json.Marshal(value); err == nil {
		texts = append(texts, string(data))
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("value", "value", value)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("value", "value", value)
	texts = append(texts, strings.TrimSpace(log.String()))
	if err, ok := value.(error); ok {
		texts = append(texts, prints(errors.Unwrap(err))...)
		if many, ok := value.(interface{ Unwrap() []error }); ok {
			for _, cause := range many.Unwrap() {
				texts = append(texts, prints(cause)...)
			}
		}
	}
	return texts
}
