// Package boundedjson decodes untrusted JSON in bounded memory.
//
// A bound on the bytes is not enough. Decoded into a slice of structs, the text {} takes a hundred
// times the memory of its two bytes.
package boundedjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// ErrTooMany means that a text has more tokens than allowed.
var ErrTooMany = errors.New("too many values")

// Unmarshal is [json.Unmarshal] for a text with a bounded number of tokens: values, names and
// brackets. If there are more, the error is [ErrTooMany].
//
// The decoder of encoding/json itself counts the tokens, up to the end of the text. If the decoder
// stops before the end, nothing is decoded, because the rest was not counted.
func Unmarshal(text []byte, most int, v any) error {
	tokens := json.NewDecoder(bytes.NewReader(text))
	tokens.UseNumber() // a number that does not fit into a float64 is still a token
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
