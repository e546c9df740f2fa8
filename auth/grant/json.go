package grant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrSyntax is the error of a grant that is not a single JSON object. It is also the error for a
// key that is unknown, repeated or in the wrong letter case. encoding/json would accept such keys.
var ErrSyntax = errors.New("not a grant; write {}, or an object with the keys list and selector")

// MarshalJSON writes {} only for All. It writes every other grant with its list, even an empty
// list. So a restricted grant never becomes {} in JSON. MarshalJSON fails for an invalid grant,
// such as one with both All and a list.
func (n Namespaces) MarshalJSON() ([]byte, error) {
	if err := n.validate(); err != nil {
		return nil, err
	}
	if n.All {
		return []byte("{}"), nil
	}
	if n.List == nil {
		n.List = []string{}
	}
	type fields Namespaces // has no MarshalJSON, so there is no recursion
	return json.Marshal(fields(n))
}

// UnmarshalJSON reads a grant strictly: null admits nobody, {} admits everybody. After an error the
// grant admits nobody.
func (n *Namespaces) UnmarshalJSON(data []byte) error {
	*n = Namespaces{}
	if isNull(data) {
		return nil
	}
	var read Namespaces
	keys, err := decodeObject(data, map[string]any{"list": &read.List, "selector": &read.Selector})
	if err != nil {
		return err
	}
	read.All = keys == 0
	if err := read.validate(); err != nil {
		return err
	}
	*n = read
	return nil
}

// UnmarshalJSON reads a selector strictly. After an error the selector is empty.
func (s *Selector) UnmarshalJSON(data []byte) error {
	*s = Selector{}
	var read Selector
	_, err := decodeObject(data, map[string]any{
		"matchLabels": (*labels)(&read.MatchLabels), "matchExpressions": &read.MatchExpressions,
	})
	if err == nil {
		*s = read
	}
	return err
}

// UnmarshalJSON reads a requirement strictly. After an error the requirement has no operator, so
// that it matches nothing.
func (r *Requirement) UnmarshalJSON(data []byte) error {
	*r = Requirement{}
	var read Requirement
	_, err := decodeObject(data, map[string]any{"key": &read.Key, "operator": &read.Operator, "values": (*values)(&read.Values)})
	if err == nil {
		*r = read
	}
	return err
}

// decodeObject decodes a JSON object strictly, and returns the number of its keys. The argument
// into maps each allowed key to the pointer through which decodeObject stores the key's value. Any
// other key is an error.
func decodeObject(data []byte, into map[string]any) (int, error) {
	keys, err := members(data)
	if err != nil {
		return 0, err
	}
	for key, value := range keys {
		field, known := into[key]
		if !known {
			return 0, fmt.Errorf("%w: it has the unknown key %s", ErrSyntax, quote(key))
		}
		if err := decode(key, value, field); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}

// members returns the keys and values of an object. It refuses repeated keys, and data that is not
// a single object.
func members(data []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf("%w: it is not a JSON object", ErrSyntax)
	}
	keys := map[string]json.RawMessage{}
	for dec.More() {
		// Inside an object the decoder returns a string for each key and refuses anything else. So
		// token is a string.
		token, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
		}
		key := fmt.Sprint(token)
		if _, twice := keys[key]; twice {
			return nil, fmt.Errorf("%w: the key %s is repeated", ErrSyntax, quote(key))
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrSyntax, quote(key), err)
		}
		keys[key] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows the JSON object", ErrSyntax)
	}
	return keys, nil
}

// labels is the type that decodes matchLabels. It refuses a null in place of a value; encoding/json
// would read the null as an empty value.
type labels map[string]string

func (l *labels) decode(key string, data json.RawMessage) error {
	if isNull(data) {
		return nil
	}
	found, err := members(data)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	*l = make(labels, len(found))
	for label, data := range found {
		var value *string
		if err := decode(key, data, &value); err != nil {
			return err
		}
		if value == nil {
			return fmt.Errorf("%w: %s: %s is null", ErrSyntax, key, quote(label))
		}
		(*l)[label] = *value
	}
	return nil
}

// values is the type that decodes the values of a requirement. It refuses a null in place of a
// value, as [labels] does.
type values []string

func (v *values) decode(key string, data json.RawMessage) error {
	var read []*string
	if err := decode(key, data, &read); err != nil {
		return err
	}
	*v = make(values, len(read))
	for i, value := range read {
		if value == nil {
			return fmt.Errorf("%w: %s[%d] is null", ErrSyntax, key, i)
		}
		(*v)[i] = *value
	}
	return nil
}

// decode decodes the value of a key. Its error contains the key.
func decode(key string, data json.RawMessage, into any) error {
	if own, ok := into.(interface {
		decode(key string, data json.RawMessage) error
	}); ok {
		return own.decode(key, data)
	}
	switch err := json.Unmarshal(data, into); {
	case err == nil:
		return nil
	case errors.Is(err, ErrSyntax):
		return fmt.Errorf("%s: %w", key, err)
	default:
		return fmt.Errorf("%w: %s: %w", ErrSyntax, key, err)
	}
}

func isNull(data []byte) bool { return string(bytes.TrimSpace(data)) == "null" }
