package yamlfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Root returns the document's top node, usually a mapping. The line numbers of nodes count from the
// beginning of the document.
func (d *Document) Root() *yamlnode.Node {
	if d.root.Kind == yamlnode.DocumentNode && len(d.root.Content) > 0 {
		return d.root.Content[0]
	}
	return d.root
}

// Range returns the byte offsets at which the document's text begins and ends in the file. The
// lines "---" around the document are outside the range.
func (d *Document) Range() (begin, end int) { return d.begin, d.begin + len(d.text) }

// Member returns a node of the document as a document of its own. Paths in the new document begin
// at the node, and errors still have the lines of the file. The node must be in the document.
func (d *Document) Member(node *yamlnode.Node) *Document {
	return &Document{file: d.file, first: d.first, root: node}
}

// Rewrite calls a function that changes the document's nodes, and returns the document's new text.
// The new text keeps the comments, the indentation and the order of the fields. JSON stays JSON.
// Blank lines and line breaks may differ. Later calls of [Document.Decode] decode the new text.
// If the document has aliases, or if encoding alone would change its values, Rewrite returns an
// [*Error] without calling the function.
func (d *Document) Rewrite(change func()) ([]byte, error) {
	if alias := findAlias(d.root); alias != nil {
		return nil, d.Member(alias).At("", errors.New("an alias (*"+alias.Value+") cannot be rewritten: write the value itself"))
	}
	if again, err := d.encode(); err != nil || !bytes.Equal(toJSON(again), d.json) {
		return nil, d.At("",
			errors.New("the document's values would change if its text were written again: write it as plain YAML or JSON"))
	}
	change()
	text, err := d.encode()
	if err != nil {
		return nil, d.At("", err)
	}
	d.json = toJSON(text)
	return text, nil
}

// findAlias returns the first alias at or below a node; nil for none.
func findAlias(node *yamlnode.Node) *yamlnode.Node {
	if node.Kind == yamlnode.AliasNode {
		return node
	}
	for _, below := range node.Content {
		if alias := findAlias(below); alias != nil {
			return alias
		}
	}
	return nil
}

// asJSON returns the document in JSON.
func (d *Document) asJSON() ([]byte, error) {
	if d.json != nil {
		return d.json, nil
	}
	text, err := d.encode()
	if err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(text)
}

// toJSON returns YAML as JSON with sorted fields; nil for malformed YAML.
func toJSON(text []byte) []byte {
	data, _ := yaml.YAMLToJSON(text) // nil after an error
	return data
}

// encode encodes the document's nodes with the indentation, line ends and escapes of its old text.
func (d *Document) encode() ([]byte, error) {
	var buffer, inJSON bytes.Buffer
	encoder := yamlnode.NewEncoder(&buffer)
	spaces, compact := indentation(d.Root())
	encoder.SetIndent(spaces)
	if compact {
		encoder.CompactSeqIndent()
	}
	err := errors.Join(encoder.Encode(d.root), encoder.Close())
	text := buffer.Bytes()
	// If the old text is JSON, the encoder's text is JSON too: it has the old braces and quotes.
	// But it lacks the old indentation.
	if json.Valid(d.text) {
		if indent := indentJSON.FindSubmatch(d.text); indent != nil {
			err = errors.Join(err, json.Indent(&inJSON, text, "", string(indent[1])))
		} else {
			err = errors.Join(err, json.Compact(&inJSON, text))
			inJSON.WriteByte('\n')
		}
		text = inJSON.Bytes()
	}
	text = d.escape(text)
	if bytes.Contains(d.text, []byte("\r\n")) {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	return text, err
}

// escape replaces characters that are not printable with escapes. The encoder writes the character
// U+00A0 itself, for example, even where the old text has the escape \u00a0. Three sorts of
// characters are kept:
//   - the line feed
//   - a character that the document's old text also has without an escape
//   - all characters, if the document has no old text
//
// Escapes are valid only in double quotes. A scalar with an escape in the old text is in double
// quotes, and the encoder keeps these quotes.
func (d *Document) escape(text []byte) []byte {
	seen := map[rune]bool{'\n': true}
	for _, r := range string(text) {
		if seen[r] || unicode.IsPrint(r) || d.text == nil {
			continue
		}
		seen[r] = true
		if !bytes.ContainsRune(d.text, r) {
			text = bytes.ReplaceAll(text, []byte(string(r)), []byte(strings.Trim(strconv.QuoteRuneToASCII(r), "'")))
		}
	}
	return text
}

// indentJSON matches the first indentation in a JSON text of several lines.
var indentJSON = regexp.MustCompile(`\n([ \t]+)`)

// indentation returns the number of spaces by which a YAML text indents mappings. If compact is
// true, the dashes of lists are not indented. The first mapping and the first list decide.
func indentation(node *yamlnode.Node) (spaces int, compact bool) {
	isFirst := true
	var look func(*yamlnode.Node)
	look = func(node *yamlnode.Node) {
		for i, below := range node.Content {
			look(below)
			if node.Kind != yamlnode.MappingNode || i%2 == 0 || len(below.Content) == 0 || below.Style&yamlnode.FlowStyle != 0 {
				continue
			}
			by := below.Column - node.Content[i-1].Column
			if below.Kind == yamlnode.SequenceNode {
				compact, isFirst = compact || isFirst && by == 0, false
			} else if spaces == 0 {
				spaces = by
			}
		}
	}
	look(node)
	return max(spaces, 2), compact
}
