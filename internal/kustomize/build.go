package kustomize

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
)

// Limits bound a build. They are part of the request, so that the child and its parent agree.
type Limits struct {
	// Files and FileBytes bound the archive: the number of its entries, and its length in bytes
	// when unpacked.
	Files     int   `json:"files"`
	FileBytes int64 `json:"fileBytes"`
	// Objects bounds the number of objects.
	Objects int `json:"objects"`
	// ObjectBytes bounds one object in JSON, and Bytes all objects together.
	ObjectBytes int `json:"objectBytes"`
	Bytes       int `json:"bytes"`
	// Values bounds the number of values in all objects together: each text, number, list and map
	// is a value. In Go's memory, a value needs up to 350 bytes, however short its JSON is.
	Values int `json:"values"`
}

const (
	// maxSpec is the largest size of an object at the API server, and so of the spec of a build.
	maxSpec = 4 << 20
	// maxObject is the largest object that an API server stores (etcd's limit of a request).
	maxObject = 3 << 19
)

// NewLimits returns the limits for archives with at most these bytes and this number of objects.
func NewLimits(archiveBytes int64, objects int) Limits {
	return Limits{Files: 10_000, FileBytes: archiveBytes * 2, Objects: objects, ObjectBytes: maxObject, Bytes: 16 << 20, Values: 500_000}
}

// Messages returns the largest lengths of a request and of its answer, for sandbox.Limits.
func (l Limits) Messages(archiveBytes int64) (request, answer int64) {
	return archiveBytes + maxSpec, int64(l.Bytes) * 2
}

// decryption asks for the decryption of encrypted files.
type decryption struct {
	// DataKeys are the data keys of encrypted files, by the files' names.
	DataKeys map[string][]byte `json:"dataKeys,omitempty"`
}

// result is what a build made.
type result struct {
	// objects are the objects in JSON, in kustomize's order.
	objects [][]byte
	report  report
	// missing are encrypted files. The build needs their data keys. Then there are no objects.
	missing []masterkey.File
}

// report says what people should know about a build.
type report struct {
	// Unencrypted are the first Secrets of which no value was encrypted. UnencryptedCount is the
	// number of all such Secrets. Both are empty if encrypted files are not decrypted.
	Unencrypted      []string `json:"unencrypted,omitempty"`
	UnencryptedCount int      `json:"unencryptedCount,omitempty"`
}

// build returns the objects that the spec makes of an archive. If decrypt is nil, encrypted files stay
// as they are.
//
// build is for a child process: kustomize has global state, knows no context, and may need any
// amount of memory and time. An error is an [*Error].
func build(ctx context.Context, tgz []byte, spec Spec, decrypt *decryption, open Open, limits Limits) (result, error) {
	content, err := archive.Files(ctx, bytes.NewReader(tgz),
		archive.Options{Limits: archive.Limits{MaxBytes: limits.FileBytes, MaxFiles: limits.Files}})
	if err != nil {
		return result{}, unpackError(err)
	}
	in := newFiles(content)
	folder, err := in.generate(spec)
	if err != nil {
		return result{}, err
	}
	c := &checker{files: in, secrets: newSecrets(decrypt, open)}
	if err := c.check(folder, false); err != nil {
		return result{}, err
	}
	if err := c.secrets.decrypt(in); err != nil {
		return result{}, err
	}
	if c.secrets != nil && len(c.secrets.missing) > 0 {
		return result{missing: c.secrets.missing}, nil
	}
	if c.ownSchema {
		// A schema of the archive is added to Kubernetes' own schema, so load the latter first. The
		// next build in this process must not see the archive's schema.
		openapi.Schema()
		defer openapi.ResetOpenAPI()
	}
	built, err := run(newFileSystem(in), path.Join("/", folder))
	if err != nil {
		return result{}, err
	}
	return finish(built, c.secrets, spec.Substitute, limits)
}

// unpackError converts an error of package archive.
func unpackError(err error) *Error {
	var refusal *archive.Error
	if !errors.As(err, &refusal) {
		return invalid("the artifact", err.Error(), "publish the artifact again")
	}
	withoutFix := *refusal
	withoutFix.Fix = ""
	failure := invalid("the artifact", withoutFix.Error(), refusal.Fix)
	if refusal.Reason == archive.ReasonTooLarge || refusal.Reason == archive.ReasonTooMany {
		failure.Reason = ReasonTooLarge
	}
	return failure
}

// run runs kustomize on a folder.
func run(fs filesys.FileSystem, folder string) (built resmap.ResMap, err error) {
	defer func() {
		// kustomize panics for some invalid objects.
		if r := recover(); r != nil {
			built, err = nil, invalid("", fmt.Sprintf("kustomize cannot read the manifests: %v", r), "check them with kustomize build")
		}
	}()
	options := &krusty.Options{
		LoadRestrictions: types.LoadRestrictionsNone, // overlays use files of their sibling folders
		PluginConfig:     types.DisabledPluginConfig(),
	}
	built, err = krusty.MakeKustomizer(options).Run(fs, folder)
	if err != nil {
		return nil, kustomizeError(err)
	}
	return built, nil
}

// kustomizeError converts an error of kustomize.
func kustomizeError(err error) *Error {
	text := strings.ReplaceAll(err.Error(), "'/", "'") // the root of the archive is "/"
	place, message := cause(text)
	if strings.Contains(message, "operation not permitted") {
		return refused(place, message, "the build may not fetch files or run programs: add the files to the artifact")
	}
	return invalid(place, message, "check the manifests with kustomize build")
}

// cause returns the file and the message of an error about a file. kustomize wraps such an error in
// several others, because kustomize tries each name as a file, and then as a folder. For any other
// error, cause returns the unchanged text.
func cause(text string) (file, message string) {
	const begin, end = "accumulating resources from '", "': must build at directory"
	at := strings.LastIndex(text, begin)
	if at < 0 {
		return "", text
	}
	file, message, _ = strings.Cut(text[at+len(begin):], "': ")
	message, _, _ = strings.Cut(message, end)
	return strings.TrimPrefix(file, "./"), message
}

// finish substitutes variables in the objects, and returns the objects with their decrypted values.
func finish(built resmap.ResMap, secrets *secrets, substitute *Substitute, limits Limits) (result, error) {
	if err := substitute.check(); err != nil {
		return result{}, err
	}
	made, count := result{objects: make([][]byte, 0, built.Size())}, counter{limits: limits}
	seen := map[string]bool{}
	for _, res := range built.Resources() {
		place := nameOf(res)
		if err := complete(res); err != nil {
			return result{}, invalid(place, err.Error(), "correct the field")
		}
		if err := substitute.apply(place, res); err != nil {
			return result{}, err
		}
		if isConfiguration(res) {
			continue
		}
		// kustomize sees objects without a namespace in the namespace "default".
		id := res.GetGvk().String() + "/" + res.CurId().EffectiveNamespace() + "/" + res.GetName()
		if seen[id] {
			return result{}, &Error{
				Reason: ReasonSubstitution, Place: place, Message: "two objects have this kind, namespace and name after their variables were replaced",
				Fix: "use different names",
			}
		}
		seen[id] = true
		object, err := res.MarshalJSON()
		if err != nil {
			return result{}, invalid(place, "the object cannot be written as JSON", "check the manifest with kustomize build")
		}
		if object, err = secrets.finish(place, res, object, substitute, &made.report); err != nil {
			return result{}, err
		}
		if err := count.add(object); err != nil {
			err.Place = place
			return result{}, err
		}
		made.objects = append(made.objects, object)
	}
	return made, nil
}

// complete checks that an object has the fields that every object has, as texts.
func complete(object *resource.Resource) error {
	for _, field := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}} {
		node, err := object.Pipe(yaml.Lookup(field...))
		name := strings.Join(field, ".")
		switch {
		case err != nil, node.IsNilOrEmpty(), node.YNode().Kind != yaml.ScalarNode, node.YNode().Value == "":
			return errors.New("an object has no " + name)
		case node.YNode().Tag != yaml.NodeTagString && node.YNode().Tag != "":
			return errors.New(name + " is no text: put it in quotation marks")
		}
	}
	return nil
}

// isConfiguration reports whether an object is for kustomize, and not for the API server.
func isConfiguration(object *resource.Resource) bool {
	return object.GetGvk().Group == "kustomize.config.k8s.io"
}

// nameOf returns the kind, the namespace and the name of an object, for errors.
func nameOf(res *resource.Resource) string {
	name := res.GetName()
	if namespace := res.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return clip(res.GetKind() + " " + name)
}
