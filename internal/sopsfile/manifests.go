package sopsfile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/getsops/sops/v3"
	sopsaes "github.com/getsops/sops/v3/aes"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile"
)

// LeftEncrypted reports whether the file's objects say that they stay encrypted. An error, which is
// an [*encryptedfile.Error], says that only some of the objects do.
func (f *File) LeftEncrypted() (bool, error) {
	left, all := 0, 0
	for _, branch := range f.tree.Branches {
		if len(branch) == 0 {
			continue // nothing is between two separators
		}
		all++
		metadata, _ := valueOf(branch, "metadata").(sops.TreeBranch)
		for _, field := range []string{"annotations", "labels"} {
			texts, _ := valueOf(metadata, field).(sops.TreeBranch)
			if valueOf(texts, encryptedfile.OwnDecrypt) == encryptedfile.Disabled || valueOf(texts, encryptedfile.FluxDecrypt) == encryptedfile.Disabled {
				left++
				break
			}
		}
	}
	if left > 0 && left < all {
		return false, &encryptedfile.Error{Message: "only some objects of the file have " + encryptedfile.FluxDecrypt + ": " + encryptedfile.Disabled, Fix: fixSplit}
	}
	return left > 0, nil
}

// Manifests returns the decrypted file as manifests. Each decrypted value is replaced by what the
// function hide returns for it. Names, namespaces and kinds are not replaced, because kustomize needs
// them. An error is an [*encryptedfile.Error].
//
// Manifests refuses a document whose kind somebody without keys may have written. These documents are
// allowed:
//   - a Secret, and a List of Secrets
//   - a document of another kind that is alone in its file, if its first two values are apiVersion and
//     kind, and the MAC covers all values: the MAC begins with these two values, so nobody else has
//     written them
//
// Only Secrets may have encrypted values below data and stringData. SOPS binds a value to its path. So
// no value of a Secret can be moved into another kind, whatever else somebody changes in the file. A
// Secret has its other encrypted values only in the fields of a Secret. So no other encrypted file,
// such as the configuration of a program, can be made a Secret that shows the file's values.
func (p *Plain) Manifests(hide func(encryptedfile.Value) string) (content []byte, err error) {
	hidden, err := p.file.load()
	if err != nil {
		return nil, err
	}
	var documents sops.TreeBranches
	for i, branch := range p.tree.Branches {
		if len(branch) == 0 {
			continue // nothing is between two separators
		}
		documents = append(documents, hidden.Branches[i])
		kind, err := p.judge(branch)
		if err != nil {
			return nil, err
		}
		var misplaced error // SOPS's library would keep only the text of an error
		err = guard("a value cannot be decrypted", func() error {
			part := sops.Tree{Metadata: hidden.Metadata, Branches: sops.TreeBranches{hidden.Branches[i]}}
			_, err := part.Decrypt(p.dataKey, &hidingCipher{cipher: sopsaes.NewCipher(), hide: func(path string, value any) any {
				if isPlain(path) {
					return value
				}
				if misplaced == nil {
					misplaced = kind.checkPath(path)
				}
				return hide(encryptedfile.Value{Plain: value, Path: path, APIVersion: kind.apiVersion, Kind: kind.kind})
			}})
			return err
		})
		if err := cmp.Or(err, misplaced); err != nil {
			return nil, err
		}
	}
	err = guard("the decrypted file cannot be written as "+string(p.file.format), func() error {
		content, err = storeOf(p.file.format).EmitPlainFile(documents)
		return err
	})
	return content, err
}

// isPlain reports whether a path leads to a field that the build reads: a field that identifies an
// object, or an annotation or a label that says what to do with the object.
func isPlain(path string) bool {
	path = strings.TrimPrefix(path, "items:")
	return slices.Contains([]string{"apiVersion", "kind", "metadata:name", "metadata:namespace"}, path) ||
		strings.HasPrefix(path, "metadata:annotations:kustomize.toolkit.") || strings.HasPrefix(path, "metadata:labels:kustomize.toolkit.")
}

// typeMeta says what kind of object a document has.
type typeMeta struct{ apiVersion, kind string }

func (t typeMeta) isSecret() bool { return t == typeMeta{"v1", "Secret"} }

func (t typeMeta) isList() bool {
	return t == typeMeta{"v1", "List"} || t == typeMeta{"v1", "SecretList"}
}

// checkPath refuses an encrypted value at a path where objects of this kind have none.
func (t typeMeta) checkPath(path string) error {
	path = strings.TrimPrefix(path, "items:")
	under := func(fields ...string) bool {
		return slices.ContainsFunc(fields, func(field string) bool { return strings.HasPrefix(path+":", field+":") })
	}
	switch ofSecret := t.isSecret() || t.isList(); {
	case !ofSecret && under("data", "stringData"):
		return &encryptedfile.Error{
			Message: fmt.Sprintf("it has an encrypted value in data or stringData of a %.63s, and only Secrets may", t.kind),
			Fix:     "make the object a Secret",
		}
	case ofSecret && !under("data", "stringData", "metadata", "type", "immutable"):
		return &encryptedfile.Error{
			Message: "its Secret has an encrypted value outside data and stringData",
			Fix:     "move the value to stringData, and encrypt the file again with sops",
		}
	}
	return nil
}

// typeOf returns what kind of object a decrypted branch has.
func typeOf(branch sops.TreeBranch) typeMeta {
	apiVersion, _ := valueOf(branch, "apiVersion").(string)
	kind, _ := valueOf(branch, "kind").(string)
	return typeMeta{apiVersion, kind}
}

// documents returns how many documents the file has, without empty ones.
func (p *Plain) documents() (count int) {
	for _, branch := range p.tree.Branches {
		count += min(len(branch), 1)
	}
	return count
}

// judge returns what kind of object a document has, or refuses the document.
func (p *Plain) judge(branch sops.TreeBranch) (typeMeta, error) {
	kind := typeOf(branch)
	switch {
	case kind.isSecret():
		return kind, nil
	case kind.isList():
		items, _ := valueOf(branch, "items").([]any)
		for _, item := range items {
			object, isObject := item.(sops.TreeBranch)
			if _, comment := item.(sops.Comment); !comment && (!isObject || !typeOf(object).isSecret()) {
				return kind, &encryptedfile.Error{Message: "its List has an item that is no Secret", Fix: "encrypt only Secrets in a List, or write the other objects into files of their own"}
			}
		}
		return kind, nil
	case p.documents() == 1 && !p.tree.Metadata.MACOnlyEncrypted && isPinned(branch):
		return kind, nil
	case p.file.format == encryptedfile.Dotenv, p.file.format == encryptedfile.INI, p.file.format == encryptedfile.Binary:
		return kind, &encryptedfile.Error{Message: "the file is encrypted as " + string(p.file.format) + ", which is no format of manifests", Fix: "use the file in a secretGenerator, or encrypt it as YAML"}
	default:
		return kind, &encryptedfile.Error{
			Message: "it has an object that is no Secret, and the MAC does not prove the object's kind",
			Fix:     "let apiVersion and kind be the first two fields of a file with this object alone, and encrypt it with sops without mac_only_encrypted",
		}
	}
}

// Patterns of an apiVersion and a kind. A kind begins with a capital letter, and an apiVersion has
// none. So the two values, run together, can be split at one place only.
var (
	apiVersionPattern = regexp.MustCompile(`\A([a-z0-9.-]+/)?[a-z0-9]+\z`)
	kindPattern       = regexp.MustCompile(`\A[A-Z][A-Za-z0-9]*\z`)
)

// isPinned reports whether the first two values of a document are its apiVersion and its kind.
func isPinned(branch sops.TreeBranch) bool {
	want := []struct {
		key     string
		pattern *regexp.Regexp
	}{{"apiVersion", apiVersionPattern}, {"kind", kindPattern}}
	for _, item := range branch {
		if _, comment := item.Key.(sops.Comment); comment {
			continue
		}
		text, ok := item.Value.(string)
		if !ok || item.Key != want[0].key || !want[0].pattern.MatchString(text) {
			return false
		}
		if want = want[1:]; len(want) == 0 {
			return true
		}
	}
	return false
}
