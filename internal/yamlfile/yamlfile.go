// Package yamlfile reads YAML files that people wrote. Its errors name the file and the line.
package yamlfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Error is an error at a line of a file.
type Error struct {
	// File is the file's name, as [Read] got it.
	File string
	// Line counts from 1.
	Line int
	// Err is the error without the file and the line.
	Err error
}

// Error returns a text that begins with file:line, which editors and terminals recognize.
func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Document is one document of a YAML file.
type Document struct {
	file  string
	first int // line of the file on which the document begins
	begin int // where the document's text begins in the file, in bytes
	text  []byte
	json  []byte // the document as JSON; nil if Member made the document
	root  *yamlnode.Node
}

// Read parses all documents of a file, and omits documents without content. For malformed YAML, or
// for a key that a mapping has twice, the error is an [*Error].
func Read(file string, data []byte) ([]*Document, error) {
	var documents []*Document
	for _, part := range split(data) {
		d := &Document{file: file, first: part.line, begin: part.begin, text: part.text, root: &yamlnode.Node{}}
		var err error
		if d.json, err = yaml.YAMLToJSONStrict(part.text); err == nil {
			err = d.parse()
		}
		if err != nil {
			return nil, d.malformed(err)
		}
		if string(d.json) != "null" {
			documents = append(documents, d)
		}
	}
	return documents, nil
}

// parse parses the document's text into nodes. A second document in the text is an error, because
// it would be lost.
func (d *Document) parse() error {
	decoder := yamlnode.NewDecoder(bytes.NewReader(d.text))
	if err := decoder.Decode(d.root); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var second yamlnode.Node
	if err := decoder.Decode(&second); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if second.Kind != 0 {
		return fmt.Errorf("line %d: another document begins here: write --- before it, with nothing after the dashes", second.Line)
	}
	return nil
}

// part is the text of a document, with the line and the byte at which it begins in the file.
type part struct {
	line, begin int
	text        []byte
}

// split divides a YAML file into documents at the lines "---". A comment may follow the dashes.
// Source: YAML 1.2.2 §9.1.2; kubectl divides manifests in this way too.
func split(data []byte) []part {
	parts := []part{{line: 1}}
	line, end := 0, 0
	for text := range bytes.Lines(data) {
		line++
		end += len(text)
		if rest, ok := bytes.CutPrefix(text, []byte("---")); ok {
			if rest = bytes.TrimSpace(rest); len(rest) == 0 || rest[0] == '#' {
				parts = append(parts, part{line: line + 1, begin: end})
				continue
			}
		}
		last := &parts[len(parts)-1]
		last.text = append(last.text, text...)
	}
	return parts
}

// lineOf finds the line number in a YAML parser's error. The parser reports it only in the text.
var lineOf = regexp.MustCompile(`line (\d+): (?s:(.+))`)

// malformed converts a parser's error to an [*Error] with the line of the file.
func (d *Document) malformed(err error) error {
	e := &Error{File: d.file, Line: d.first, Err: err}
	if found := lineOf.FindStringSubmatch(err.Error()); found != nil {
		if line, err := strconv.Atoi(found[1]); err == nil {
			e.Line, e.Err = d.first+line-1, errors.New(found[2])
		}
	}
	return e
}

// Decode decodes the document by JSON tags, and stores the result in *into. The error joins
// [*Error] values: one for each unknown field, or one for a value of a wrong type.
func (d *Document) Decode(into any) error {
	data, err := d.asJSON()
	if err != nil {
		return d.malformed(err)
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		return d.mistyped(data, into, err)
	}
	var errs []error
	for _, err := range strict {
		path := ""
		if unknown, ok := errors.AsType[kjson.FieldError](err); ok {
			path = unknown.FieldPath()
		}
		errs = append(errs, d.At(path, err))
	}
	return errors.Join(errs...)
}

// mistyped converts a JSON decoder's error about a value to an [*Error] about the value's field.
func (d *Document) mistyped(data []byte, into any, err error) error {
	path := ""
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		path = withoutEmbedded(mistyped.Field)
		err = fmt.Errorf("must not be a JSON %s; write %s", mistyped.Value, nounOf(mistyped.Type))
	}
	if path == "" { // a type with its own decoder, such as a duration, returns an error without a path
		path = culprit(data, reflect.TypeOf(into).Elem())
	}
	if path != "" {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return d.At(path, err)
}

// culprit returns the path of a field that cannot be decoded into the Go type; empty if there is no
// such field. It decodes each field alone, and does not look into lists.
func culprit(data []byte, of reflect.Type) string {
	path, before, after := "", "", ""
	for {
		var fields map[string]json.RawMessage
		if json.Unmarshal(data, &fields) != nil {
			return path
		}
		names := slices.Sorted(maps.Keys(fields))
		refused := slices.IndexFunc(names, func(name string) bool {
			alone := before + field(name) + string(fields[name]) + "}" + after
			_, err := kjson.UnmarshalStrict([]byte(alone), reflect.New(of).Interface())
			return err != nil
		})
		if refused < 0 {
			return path
		}
		name := names[refused]
		path, data = strings.TrimPrefix(path+"."+name, "."), fields[name]
		before, after = before+field(name), "}"+after
	}
}

// field returns what precedes the value in a JSON object with one field, such as `{"spec":`.
func field(name string) string {
	quoted, err := json.Marshal(name)
	if err != nil {
		panic(err) // cannot happen: every string can be encoded as JSON
	}
	return "{" + string(quoted) + ":"
}

// nounOf returns the words by which errors describe a value of a Go type.
func nounOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	default:
		return "a number"
	}
}

// withoutEmbedded removes the names of embedded structs from the path of an
// [*json.UnmarshalTypeError]. These names are exported Go names and begin with a capital. The
// fields of the YAML files do not begin with a capital.
func withoutEmbedded(path string) string {
	names := slices.DeleteFunc(strings.Split(path, "."), func(name string) bool {
		return name != "" && name[0] >= 'A' && name[0] <= 'Z'
	})
	return strings.Join(names, ".")
}

// At returns an [*Error] at the line of the field at a path, such as "spec.ref.tag",
// "roles[0].policies" or `labels["app"]`. If the field is absent, the error has the line of the
// innermost parent that exists.
func (d *Document) At(path string, err error) error {
	return &Error{File: d.file, Line: d.line(path), Err: err}
}

func (d *Document) line(path string) int {
	at := d.Root()
	line := at.Line
	for _, name := range elements(path) {
		key, value := Child(at, name)
		if value == nil {
			break
		}
		line, at = key.Line, value
	}
	return d.first + line - 1
}

// Child returns the key node and the value node of a member of a mapping; nil if the member is
// absent. In a sequence, the name is an index, and both results are the element at this index.
func Child(parent *yamlnode.Node, name string) (key, value *yamlnode.Node) {
	if parent.Kind == yamlnode.AliasNode {
		parent = parent.Alias
	}
	if parent.Kind == yamlnode.MappingNode {
		for i := 0; i+1 < len(parent.Content); i += 2 {
			if parent.Content[i].Value == name {
				return parent.Content[i], parent.Content[i+1]
			}
		}
	}
	if i, err := strconv.Atoi(name); parent.Kind == yamlnode.SequenceNode && err == nil && i >= 0 && i < len(parent.Content) {
		return parent.Content[i], parent.Content[i]
	}
	return nil, nil
}

// elements splits a path into names and indexes.
func elements(path string) []string {
	var all []string
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			name, rest, _ := strings.Cut(rest, "]")
			if unquoted, err := strconv.Unquote(name); err == nil {
				name = unquoted
			}
			all, path = append(all, name), strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		all, path = append(all, path[:end]), strings.TrimPrefix(path[end:], ".")
	}
	return all
}
