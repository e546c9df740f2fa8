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
	secrets   *secrets // nil if encrypted files stay as they are
	loads     int
	ownSchema bool // a kustomization file has the field openapi
}

// check checks the kustomization file of a folder, and all that the file uses. If the kustomization
// configures plugins, plugins is true. The way has the folders from the first kustomization file to
// this one.
func (c *checker) check(folder string, plugins bool, way ...string) error {
	for _, before := range way {
		if _, inside := within(folder, before); inside || before == folder {
			return invalid(path.Join(way[len(way)-1], "kustomization.yaml"), "the file uses "+quote(folder)+", which uses the file", "break the circle")
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
	if err := c.secrets.refuse(found[0], c.files.content[found[0]]); err != nil {
		return err
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
			names := field.names
			if plugins && names == manifest {
				names = plugin
			}
			if err := c.entry(place, folder, entry, names, append(way, folder)); err != nil {
				return err
			}
		}
	}
	return nil
}

// target says what an entry of a kustomization file names.
type target int

const (
	// plainFile is a file that kustomize only reads.
	plainFile target = iota
	// keyedFile is a plainFile. Before the name may be "key=".
	keyedFile
	// secretFile is a keyedFile that becomes a value of a Secret.
	secretFile
	// secretEnv is a plainFile whose lines become values of a Secret.
	secretEnv
	// patchFile is a plainFile with a patch.
	patchFile
	// patch is a patchFile, or the text of a patch.
	patch
	// manifest is a file with objects, or a folder with a kustomization file.
	manifest
	// component is a folder with a kustomization file.
	component
	// plugin is a manifest, or the text of a manifest. The objects configure plugins.
	plugin
)

// field has the entries of one field of a kustomization file.
type field struct {
	name    string
	names   target // what each entry names
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
	add := func(name string, names target, entries ...string) {
		fields = append(fields, field{name, names, entries})
	}
	for _, entry := range k.PatchesStrategicMerge { //nolint:staticcheck // tenants use it still
		add("patchesStrategicMerge", patch, string(entry))
	}
	for _, entry := range append(k.Patches, k.PatchesJson6902...) { //nolint:staticcheck // tenants use it still
		add("patches", patchFile, entry.Path)
	}
	for _, replacement := range k.Replacements {
		add("replacements", plainFile, replacement.Path)
	}
	sources := func(name string, from types.KvPairSources, file, env target) {
		add(name+".files", file, from.FileSources...)
		add(name+".envs", env, append(from.EnvSources, from.EnvSource)...)
	}
	for _, generator := range k.ConfigMapGenerator {
		sources("configMapGenerator", generator.KvPairSources, keyedFile, plainFile)
	}
	for _, generator := range k.SecretGenerator {
		sources("secretGenerator", generator.KvPairSources, secretFile, secretEnv)
	}
	return fields
}

// entry checks one entry of a field, and what the entry names.
func (c *checker) entry(place, folder, entry string, names target, way []string) error {
	if entry == "" {
		return nil // a path that is not set; in a list, kustomize refuses an empty entry
	}
	if c.loads++; c.loads > maxLoads {
		return &Error{Reason: ReasonTooLarge, Place: place, Message: fmt.Sprintf("the build loads more than %d files", maxLoads), Fix: "use fewer files"}
	}
	remote := isURL
	switch names {
	case keyedFile, secretFile:
		if _, file, found := strings.Cut(entry, "="); found {
			entry = file
		}
	case patch:
		// kustomize fetches the entry if the entry is a URL. Otherwise the entry is a file, if there
		// is such a file, or the text of a patch.
		if strings.ContainsAny(entry, "\n{") && !isURL(entry) {
			return nil
		}
	case plugin:
		if isURL(entry) { // kustomize fetches an entry that is no object, though the entry is YAML
			break
		}
		if nodes, err := kio.FromBytes([]byte(entry)); err == nil && len(nodes) > 0 && nodes[0].YNode().Kind == yaml.MappingNode {
			return checkPlugins(place, nodes)
		}
		remote = c.isRemoteManifest(folder)
	case manifest:
		remote = c.isRemoteManifest(folder)
	case component:
		remote = isRepository
	case plainFile, secretEnv, patchFile:
	}
	name, err := resolve(place, folder, entry, remote)
	if err != nil {
		return err
	}
	switch {
	case names != component && c.files.isFile(name):
		if err := c.secrets.use(place, name, c.files.content[name], names); err != nil {
			return err
		}
		if names == plugin {
			nodes, err := kio.FromBytes(c.files.content[name])
			if err != nil {
				return invalid(name, err.Error(), "correct the file")
			}
			return checkPlugins(name, nodes)
		}
		return nil
	case c.files.folders[name] && (names == manifest || names == component || names == plugin):
		return c.check(name, names == plugin, way...)
	default:
		return invalid(place, "the artifact has no file "+quote(name), "correct the path, or add the file to the source")
	}
}

// resolve returns the clean name of a file or folder that an entry names. It refuses entries that
// name something outside the archive. The function remote reports whether kustomize would ask
// another server for the entry.
func resolve(place, folder, entry string, remote func(entry string) bool) (string, error) {
	const fix = "add the files to the artifact, and use a relative path"
	switch name := path.Join(folder, entry); {
	case remote(entry):
		return "", refused(place, quote(entry)+" names another server", fix)
	case path.IsAbs(entry):
		return "", refused(place, quote(entry)+" is an absolute path", fix)
	case name == "..", strings.HasPrefix(name, "../"):
		return "", refused(place, quote(entry)+" leaves the artifact", fix)
	default:
		return name, nil
	}
}

// webPage matches all that kustomize reads over HTTP. The source is its function IsRemoteFile.
var webPage = regexp.MustCompile(`(?i)^https?:`)

// isURL reports whether kustomize would read a file over HTTP.
func isURL(entry string) bool { return webPage.MatchString(entry) }

// repository matches all that kustomize takes for a URL or a git repository. The source is its
// function NewRepoSpecFromURL.
var repository = regexp.MustCompile(`(?i)^(git::|https?:|[a-z][a-z0-9+.-]*://|github\.com[/:]|[a-z][a-z0-9-]*@[^/]*[:/])`)

// isRepository reports whether kustomize would run git for a folder.
func isRepository(entry string) bool { return repository.MatchString(entry) }

// isRemoteManifest returns a function that reports whether kustomize would ask another server for a
// manifest. kustomize tries each manifest as a file first, and then as a folder.
func (c *checker) isRemoteManifest(folder string) func(entry string) bool {
	return func(entry string) bool {
		return isURL(entry) || isRepository(entry) && !c.files.isFile(path.Join(folder, entry))
	}
}

// namesFiles reports whether a field of kustomize's own plugins names files or repositories.
func namesFiles(field string) bool {
	return slices.Contains([]string{"path", "paths", "files", "envs", "env", "repo"}, field)
}

// checkPlugins checks the configurations of plugins.
func checkPlugins(place string, nodes []*yaml.RNode) error {
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
	if node.Kind == yaml.ScalarNode && named {
		_, file, found := strings.Cut(node.Value, "=")
		if isURL(node.Value) || found && isURL(file) {
			return refused(place, quote(node.Value)+" names another server", "add the files to the artifact, and use a relative path")
		}
	}
	for i, part := range node.Content { // none in a scalar and an alias
		inNamed := named
		if node.Kind == yaml.MappingNode {
			inNamed = i%2 == 1 && namesFiles(node.Content[i-1].Value) // the values follow their names
		}
		if err := pluginPaths(place, part, inNamed); err != nil {
			return err
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
