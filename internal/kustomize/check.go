package kustomize

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/kio"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// maxLoads bounds how many files and folders a build may load. A folder that is used twice counts
// twice, with all that it uses. So folders that use each other cannot multiply without end.
const maxLoads = 10_000

// checker checks kustomization files before kustomize reads them.
type checker struct {
	files     *files
	loads     int
	ownSchema bool // a kustomization file has the field openapi
}

// check checks the kustomization file of a folder, and all that the file uses. The users are the
// folders on the way from the first kustomization file.
func (c *checker) check(folder string, users ...string) error {
	for _, user := range users {
		if _, inside := within(folder, user); inside || user == folder {
			return invalid(path.Join(users[len(users)-1], "kustomization.yaml"), "it uses "+quote(folder)+", which uses it", "break the circle")
		}
	}
	found := c.files.kustomizationFiles(folder)
	switch len(found) {
	case 0:
		return invalid(folder, "the folder has no kustomization file", "add a kustomization.yaml, or list the files of the folder")
	case 1:
	default:
		return invalid(strings.Join(found, ", "), "the folder has several kustomization files", "keep one of them")
	}
	k := &types.Kustomization{}
	if err := k.Unmarshal(c.files.content[found[0]]); err != nil {
		return invalid(found[0], err.Error(), "correct the file")
	}
	k.FixKustomization() // moves the content of old fields, such as bases, to new fields
	if len(k.HelmCharts) > 0 || k.HelmGlobals != nil {
		return refused(found[0]+": helmCharts", "helm charts are not inflated", "render the chart before you publish the artifact")
	}
	c.ownSchema = c.ownSchema || len(k.OpenAPI) > 0
	for _, field := range fieldsOf(k) {
		for i, entry := range field.entries {
			place := fmt.Sprintf("%s: %s[%d]", found[0], field.name, i)
			if err := c.entry(place, folder, entry, field.is, append(users, folder)); err != nil {
				return err
			}
		}
	}
	return nil
}

// content says what an entry of a kustomization file names.
type content int

const (
	plainFile      content = iota // a file that kustomize only reads
	manifest                      // a file, or a folder with a kustomization file
	component                     // a folder with a kustomization file
	plugin                        // as manifest, or YAML in place; the YAML configures a plugin
	fileOrPatch                   // a file, or YAML in place
	fileWithOption                // a file, with an optional "key=" before it
)

// field has the entries of one field of a kustomization file.
type field struct {
	name    string
	is      content
	entries []string
}

// fieldsOf returns all fields of a kustomization file that name files.
func fieldsOf(k *types.Kustomization) []field {
	fields := []field{
		{"resources", manifest, k.Resources},
		{"components", component, k.Components},
		{"crds", plainFile, k.Crds},
		{"configurations", plainFile, k.Configurations},
		{"generators", plugin, k.Generators},
		{"transformers", plugin, k.Transformers},
		{"validators", plugin, k.Validators},
	}
	if name, found := k.OpenAPI["path"]; found {
		fields = append(fields, field{"openapi.path", plainFile, []string{name}})
	}
	add := func(name string, is content, entries ...string) { fields = append(fields, field{name, is, entries}) }
	for _, patch := range k.PatchesStrategicMerge { //nolint:staticcheck // tenants use it still
		add("patchesStrategicMerge", fileOrPatch, string(patch))
	}
	for _, patch := range append(k.Patches, k.PatchesJson6902...) { //nolint:staticcheck // tenants use it still
		add("patches", plainFile, patch.Path)
	}
	for _, replacement := range k.Replacements {
		add("replacements", plainFile, replacement.Path)
	}
	sources := func(name string, from types.KvPairSources) {
		add(name+".files", fileWithOption, from.FileSources...)
		add(name+".envs", plainFile, append(from.EnvSources, from.EnvSource)...)
	}
	for _, generator := range k.ConfigMapGenerator {
		sources("configMapGenerator", generator.KvPairSources)
	}
	for _, generator := range k.SecretGenerator {
		sources("secretGenerator", generator.KvPairSources)
	}
	return fields
}

// entry checks one entry of a field, and what the entry names.
func (c *checker) entry(place, folder, entry string, is content, users []string) error {
	if entry == "" {
		return nil // an optional path that is not set; kustomize refuses empty entries of lists
	}
	if c.loads++; c.loads > maxLoads {
		return &Error{Reason: ReasonTooLarge, Place: place, Message: fmt.Sprintf("the build loads more than %d files", maxLoads), Fix: "use fewer files"}
	}
	switch is {
	case fileWithOption:
		if _, file, found := strings.Cut(entry, "="); found {
			entry = file
		}
	case fileOrPatch:
		// kustomize takes an entry for a file if such a file exists. It asks for URLs first.
		if strings.ContainsAny(entry, "\n{") && !isRemote(entry) {
			return nil
		}
	case plugin:
		if nodes, err := kio.FromBytes([]byte(entry)); err == nil && len(nodes) > 0 && nodes[0].YNode().Kind == yaml.MappingNode {
			return plugins(place, nodes)
		}
	case plainFile, manifest, component:
	}
	name, err := resolve(place, folder, entry)
	if err != nil {
		return err
	}
	switch {
	case is != component && c.files.isFile(name):
		if is == plugin {
			nodes, err := kio.FromBytes(c.files.content[name])
			if err != nil {
				return invalid(name, err.Error(), "correct the file")
			}
			return plugins(name, nodes)
		}
		return nil
	case c.files.folders[name] && (is == manifest || is == component || is == plugin):
		return c.check(name, users...)
	default:
		return invalid(place, "the artifact has no file "+quote(name), "correct the path, or add the file to the source")
	}
}

// resolve returns the clean name of a file or folder that an entry names. It refuses entries that
// name something outside the archive.
func resolve(place, folder, entry string) (string, error) {
	const fix = "add the files to the artifact, and use a relative path"
	switch name := path.Join(folder, entry); {
	case isRemote(entry):
		return "", refused(place, quote(entry)+" names another server", fix)
	case path.IsAbs(entry):
		return "", refused(place, quote(entry)+" is an absolute path", fix)
	case name == "..", strings.HasPrefix(name, "../"):
		return "", refused(place, quote(entry)+" leaves the artifact", fix)
	default:
		return name, nil
	}
}

// remote matches all that kustomize takes for a URL or a git repository. The source is the function
// NewRepoSpecFromURL of kustomize, and the function IsRemoteFile.
var remote = regexp.MustCompile(`(?i)^(git::|https?:|[a-z][a-z0-9+.-]*://|github\.com[/:]|[a-z][a-z0-9-]*@[^/]*[:/])`)

// isRemote reports whether kustomize would ask another server for an entry.
func isRemote(entry string) bool { return remote.MatchString(entry) }

// namesFiles reports whether a field of kustomize's own plugins names files or repositories.
func namesFiles(field string) bool {
	return slices.Contains([]string{"path", "paths", "files", "envs", "env", "repo"}, field)
}

// plugins checks the configurations of plugins.
func plugins(place string, nodes []*yaml.RNode) error {
	for _, node := range nodes {
		if strings.HasPrefix(node.GetKind(), "HelmChart") {
			return refused(place, "helm charts are not inflated", "render the chart before you publish the artifact")
		}
		if node.GetAnnotations()["config.kubernetes.io/function"] != "" {
			return refused(place, "functions in containers and scripts are not run", "remove the annotation config.kubernetes.io/function")
		}
		if err := pluginPaths(place, node.YNode(), false); err != nil {
			return err
		}
	}
	return nil
}

// pluginPaths looks for paths of other servers in the configuration of a plugin. named says that the
// node is the value of a field that names files.
func pluginPaths(place string, node *yaml.Node, named bool) error {
	if node.Kind == yaml.AliasNode && node.Alias.Kind == yaml.ScalarNode {
		node = node.Alias // other aliases may contain themselves
	}
	switch {
	case node.Kind == yaml.ScalarNode:
		_, file, found := strings.Cut(node.Value, "=")
		if named && (isRemote(node.Value) || found && isRemote(file)) {
			return refused(place, quote(node.Value)+" names another server", "add the files to the artifact, and use a relative path")
		}
	case node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if err := pluginPaths(place, node.Content[i+1], namesFiles(node.Content[i].Value)); err != nil {
				return err
			}
		}
	case node.Kind == yaml.SequenceNode:
		for _, item := range node.Content {
			if err := pluginPaths(place, item, named); err != nil {
				return err
			}
		}
	}
	return nil
}

// quote returns a text in quotation marks, shortened.
func quote(text string) string {
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}
