// Package boundedjson decodes JSON that a stranger wrote, in memory that the stranger cannot
// choose.
//
// A bound on the bytes is not enough. Decoded into a slice of structs, {} takes a hundred times the
// two bytes that it is written in.
package boundedjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// ErrTooMany is a text with more tokens than are allowed.
var ErrTooMany = errors.New("too many values")

// Unmarshal is [json.Unmarshal] for a text of at most that many tokens: values, names and brackets.
// A text with more tokens is [ErrTooMany].
//
// The tokens are counted by the reader of encoding/json itself, up to the end of the text. If the
// reader stops before the end, nothing is decoded, because the rest was not counted.
func Unmarshal(text []byte, most int, v any) error {
	tokens := json.NewDecoder(bytes.NewReader(text))
	tokens.UseNumber() // a number that fits no float64 is still a token
	for n := 0; ; n++ {
		_, err := tokens.Token()
		switch {
		case errors.Is(err, io.EOF):
			return json.Unmarshal(text, v)
		case err != nil:
			return err
		case n == most:
			return ErrTooMany
		}
	}
}
