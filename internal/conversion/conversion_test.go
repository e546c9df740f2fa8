package conversion_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/conversion"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/yamlfile"
)

// TestConvert compares converted manifests of each project with golden files. A second conversion
// changes nothing.
func TestConvert(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		opts conversion.Options
	}{
		"flux":               {"flux.yaml", conversion.Options{Kinds: kinds.All()}},
		"kustomizations":     {"kustomizations.yaml", conversion.Options{Kinds: kinds.All()}},
		"external-artifacts": {"external-artifacts.yaml", conversion.Options{Kinds: kinds.All(), ExternalArtifacts: true}},
		"capa":               {"capa.yaml", conversion.Options{Kinds: kinds.All()}},
		"gardener":           {"gardener.yaml", conversion.Options{Kinds: kinds.All()}},
		"list":               {"list.yaml", conversion.Options{Kinds: kinds.All(), ExternalArtifacts: true}},
		"json":               {"list.json", conversion.Options{Kinds: kinds.All(), ExternalArtifacts: true}},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", test.file))
			must.Succeed(t, err)
			files, notes, err := conversion.Convert([]conversion.File{{Name: test.file, Data: data}}, test.opts)
			must.Succeed(t, err)
			if !files[0].Changed {
				t.Error("nothing is converted")
			}
			golden.Compare(t, filepath.Join("testdata", name+".golden"), files[0].Data)
			golden.Compare(t, filepath.Join("testdata", name+"-notes.golden"), []byte(strings.Join(notes, "\n")+"\n"))
			again, _, err := conversion.Convert([]conversion.File{{Name: test.file, Data: files[0].Data}}, test.opts)
			if err != nil || again[0].Changed || !bytes.Equal(again[0].Data, files[0].Data) {
				t.Errorf("the second conversion: %v, changed %v:\n%s", err, again[0].Changed, again[0].Data)
			}
		})
	}
}

// Parts of manifests.
const (
	ociRepository = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: app}\n"
	bucket        = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: Bucket\nmetadata: {name: app}\n"
	files         = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: Bucket\nmetadata: {name: files}\n"
	helmRelease   = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: app}\n"
	identity      = "apiVersion: infrastructure.cluster.x-k8s.io/v1beta2\nkind: AWSClusterControllerIdentity\nmetadata: {name: default}\n"
	workload      = "apiVersion: security.gardener.cloud/v1alpha1\nkind: WorkloadIdentity\nmetadata: {name: app, namespace: a}\nspec:\n  targetSystem:\n"
)

func TestErrors(t *testing.T) {
	const everybody = "Cluster API Provider AWS may read this as every namespace, and Lanyard reads it as none; write {} for every namespace, or name namespaces in list"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"all at once": {
			ociRepository + "spec:\n  interval: 5\n---\n" + files + "spec: {bucketName: [a]}\n---\n" + ociRepository + "spec: {tag: a, urll: b}\n",
			[]string{
				"f.yaml:5: spec.interval: must not be a JSON number; write a string",
				"f.yaml:10: spec.bucketName: must not be a JSON array; write a string",
				"f.yaml:15: spec.tag: Lanyard's OCIRepository does not have this field; remove it",
				"f.yaml:15: spec.urll: Lanyard's OCIRepository does not have this field; remove it",
			},
		},
		"no duration": {ociRepository + "spec:\n  timeout: a minute\n", []string{`f.yaml:5: spec.timeout: time: invalid duration "a minute"`}},
		"in a list": {
			"kind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n- apiVersion: source.toolkit.fluxcd.io/v1\n  kind: Bucket\n  spec:\n    bucket: a\n",
			[]string{"f.yaml:8: spec.bucket: Lanyard's Bucket does not have this field; remove it"},
		},
		"malformed":      {"a: [\n", []string{"f.yaml:1: did not find expected node content"}},
		"second":         {"a: 1\n--- {b: 1}\n", []string{"f.yaml:2: another document begins here: write --- before it, with nothing after the dashes"}},
		"alias":          {ociRepository + "spec:\n  url: &a x\n  interval: *a\n", []string{"f.yaml:6: an alias (*a) cannot be rewritten: write the value itself"}},
		"aliased object": {"kind: List\nitems:\n- &a {apiVersion: source.toolkit.fluxcd.io/v1, kind: Bucket}\n- *a\n", []string{"f.yaml:4: an alias (*a) cannot be rewritten: write the value itself"}},
		"two fields":     {workload + "    type: aws\n    providerConfig: {roleARN: a, iamRoleARN: b}\n", []string{"f.yaml:7: spec.targetSystem.providerConfig.roleARN: is the same as iamRoleARN; remove one of the two"}},
		"foreign fields": {
			workload + "    type: aws\n    providerConfig:\n      region: a\n      roleARN: 7\n",
			[]string{
				"f.yaml:8: spec.targetSystem.providerConfig.region: Lanyard has no such field for this target; remove it",
				"f.yaml:9: spec.targetSystem.providerConfig.roleARN: must be a string; write it in quotes",
			},
		},
		"token sink": {
			workload + "    type: gcp\n    providerConfig:\n      credentialsConfig:\n        token_url: https://example.com\n" +
				"        service_account_impersonation_url: https://example.com\n        credential_source: {file: x}\n        universe_domain: googleapis.com\n        quota_project_id: a\n",
			[]string{
				"f.yaml:9: spec.targetSystem.providerConfig.credentialsConfig.token_url: Lanyard uses only https://sts.googleapis.com/v1/token; remove the field if this is right",
				"f.yaml:10: spec.targetSystem.providerConfig.credentialsConfig.service_account_impersonation_url: is not the URL of a service account at googleapis.com; " +
					"remove it, and write serviceAccountEmail after the conversion",
				"f.yaml:11: spec.targetSystem.providerConfig.credentialsConfig.credential_source: must be a string; write it in quotes",
				"f.yaml:13: spec.targetSystem.providerConfig.credentialsConfig.quota_project_id: Lanyard has no such field; remove it",
			},
		},
		"Azure's fields": {workload + "    type: azure\n    providerConfig: {credentialsConfig: {}}\n", []string{"f.yaml:7: spec.targetSystem.providerConfig.credentialsConfig: Lanyard has no such field for this target; remove it"}},

		"list null":          {identity + "spec: {allowedNamespaces: {list: null}}\n", []string{"f.yaml:4: spec.allowedNamespaces: " + everybody}},
		"empty selector":     {identity + "spec: {allowedNamespaces: {selector: {}}}\n", []string{"f.yaml:4: spec.allowedNamespaces: " + everybody}},
		"null selector":      {identity + "spec: {allowedNamespaces: {selector: null}}\n", []string{"f.yaml:4: spec.allowedNamespaces: " + everybody}},
		"Go's everybody":     {identity + "spec: {allowedNamespaces: {list: null, selector: {}}}\n", []string{"f.yaml:4: spec.allowedNamespaces: " + everybody}},
		"no labels":          {identity + "spec:\n  allowedNamespaces: {selector: {matchLabels: {}}}\n", []string{"f.yaml:5: spec.allowedNamespaces: " + everybody}},
		"unknown in a spec":  {identity + "spec:\n  allowedNamespaces: {}\n  sourceonly: true\n", []string{"f.yaml:6: spec.sourceonly: Lanyard's AWSClusterControllerIdentity does not have this field; remove it"}},
		"unknown in a grant": {identity + "spec:\n  allowedNamespaces:\n    names: [a]\n", []string{"f.yaml:6: spec.allowedNamespaces.names: Lanyard's AWSClusterControllerIdentity does not have this field; remove it"}},
		"list of one":        {identity + "spec: {allowedNamespaces: {list: test}}\n", []string{"f.yaml:4: spec.allowedNamespaces.list: must not be a JSON string; write a list"}},
		"grant as text":      {identity + "spec: {allowedNamespaces: all}\n", []string{"f.yaml:4: spec.allowedNamespaces: must not be a JSON string; write an object"}},

		"chart in a bucket": {
			bucket + "---\n" + helmRelease + "spec:\n  chart:\n    spec:\n      sourceRef: {kind: Bucket, name: app}\n",
			[]string{"f.yaml:11: spec.chart.spec.sourceRef: Flux takes a chart of Bucket app from no ExternalArtifact here; push the chart to a registry, and name an OCIRepository in spec.chartRef of the HelmRelease"},
		},
		"old Kustomization": {
			bucket + "---\napiVersion: kustomize.toolkit.fluxcd.io/v1beta2\nkind: Kustomization\nspec:\n  sourceRef: {kind: Bucket, name: app}\n",
			[]string{"f.yaml:8: spec.sourceRef: only kustomize.toolkit.fluxcd.io/v1 can name an ExternalArtifact; change apiVersion"},
		},
		"two of a name": {bucket + "---\n" + ociRepository, []string{"f.yaml:7: metadata.name: the Bucket of this name publishes the same ExternalArtifact app; give the OCIRepository another name"}},
	} {
		t.Run(name, func(t *testing.T) {
			files, notes, err := conversion.Convert([]conversion.File{{Name: "f.yaml", Data: []byte(test.text)}}, conversion.Options{Kinds: kinds.All(), ExternalArtifacts: true})
			if err == nil || files != nil || notes != nil {
				t.Fatalf("%v, %v, %v", files, notes, err)
			}
			if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, test.want) {
				t.Errorf("says\n%s\nwant\n%s", err, strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestGrants checks that grants which Lanyard and Cluster API Provider AWS read alike are accepted.
// The conversion drops only an empty selector from such a grant.
func TestGrants(t *testing.T) {
	for before, after := range map[string]string{
		"null": "null", "{}": "{}", "{list: []}": "{list: []}", "{list: [a]}": "{list: [a]}",
		"{list: [a], selector: null}":                                  "{list: [a], selector: null}",
		"{list: [], selector: {}}":                                     "{list: []}",
		"{list: [a], selector: {matchLabels: {}}}":                     "{list: [a]}",
		"{list: null, selector: {matchLabels: {a: b}}}":                "{list: null, selector: {matchLabels: {a: b}}}",
		"{selector: {matchExpressions: [{key: a, operator: Exists}]}}": "{selector: {matchExpressions: [{key: a, operator: Exists}]}}",
	} {
		files, _, err := conversion.Convert([]conversion.File{{Data: []byte(identity + "spec: {allowedNamespaces: " + before + "}\n")}}, conversion.Options{Kinds: kinds.All()})
		if err != nil || !strings.HasSuffix(string(files[0].Data), "\nspec: {allowedNamespaces: "+after+"}\n") {
			t.Errorf("%s: %v: %s, want %s", before, err, files[0].Data, after)
		}
	}
}

// TestSeveralFiles checks that references to objects in other files are converted, and that a file
// without an object to convert stays as it is.
func TestSeveralFiles(t *testing.T) {
	const other = "kind:   Pod # as it is\n"
	files, notes, err := conversion.Convert([]conversion.File{
		{Name: "a.yaml", Data: []byte("kind: Kustomization\napiVersion: kustomize.toolkit.fluxcd.io/v1\nspec: {sourceRef: {kind: Bucket, name: app}}")},
		{Name: "b.yaml", Data: []byte(other)},
		{Name: "c.yaml", Data: []byte(strings.ReplaceAll(bucket, "\n", "\r\n"))},
	}, conversion.Options{Kinds: kinds.All(), ExternalArtifacts: true})
	must.Succeed(t, err)
	if !files[0].Changed || files[1].Changed || !files[2].Changed || string(files[1].Data) != other || len(notes) != 3 {
		t.Errorf("%+v: %q", files, notes)
	}
	if !strings.Contains(string(files[0].Data), "{sourceRef: {kind: ExternalArtifact, name: app}}") {
		t.Errorf("%s", files[0].Data)
	}
	if bytes.Count(files[2].Data, []byte("\n")) != bytes.Count(files[2].Data, []byte("\r\n")) {
		t.Errorf("line ends change: %q", files[2].Data)
	}
}

// TestFieldsNamedLikeAKind checks which fields count as references to an object. A reference must
// have a field kind with the object's kind. Only Flux's field imageRepositoryRef needs none. A
// bucketRef without a kind may refer to an object of another project, such as Crossplane.
func TestFieldsNamedLikeAKind(t *testing.T) {
	for spec, noted := range map[string]bool{
		"imageRepositoryRef: {name: app}":         true,
		"sourceRef: {kind: Bucket, name: app}":    true,
		"bucketRef: {name: app}":                  false,
		"otherBucketRef: {kind: X, name: app}":    false,
		"imagerepositoryref: {name: app}":         false,
		"sourceRef: {kind: OtherKind, name: app}": false,
	} {
		image := "apiVersion: image.toolkit.fluxcd.io/v1\nkind: ImageRepository\nmetadata: {name: app}\nspec: {image: h.example/r, interval: 1m}\n"
		text := "apiVersion: example.com/v1\nkind: Other\nspec: {" + spec + "}\n---\n" + image + "---\n" + bucket
		_, notes, err := conversion.Convert([]conversion.File{{Name: "f.yaml", Data: []byte(text)}}, conversion.Options{Kinds: kinds.All()})
		must.Succeed(t, err)
		if got := strings.Contains(strings.Join(notes, "\n"), "which Flux no longer fetches"); got != noted {
			t.Errorf("%s: noted is %t: %q", spec, got, notes)
		}
	}
}

// FuzzConvert checks that a converted file can be read and has as many objects as before. If a note
// says that an object was converted, the object must have changed. A second conversion must change
// nothing.
func FuzzConvert(f *testing.F) {
	for _, file := range []string{"flux.yaml", "external-artifacts.yaml", "kustomizations.yaml", "capa.yaml", "gardener.yaml", "list.yaml", "list.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		must.Succeed(f, err)
		f.Add(data, true)
		f.Add(data, false)
	}
	for _, text := range []string{
		bucket, identity, workload, ociRepository + "spec: {a: &a b, c: *a}\n", "kind: List\nitems: {a: b}\n", "kind: List\nitems: [a, [b], null]\n",
		"metadata: [a]\n" + bucket, bucket + "status: # a\n  - b\n# c\n", "? [a]\n: b\n",
	} {
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, externalArtifacts bool) {
		opts := conversion.Options{Kinds: kinds.All(), ExternalArtifacts: externalArtifacts}
		files, notes, err := conversion.Convert([]conversion.File{{Name: "f", Data: data}}, opts)
		if err != nil {
			return
		}
		before, after := objects(t, data), objects(t, files[0].Data)
		if len(before) != len(after) || files[0].Changed == bytes.Equal(files[0].Data, data) {
			t.Fatalf("%d objects became %d, changed %v", len(before), len(after), files[0].Changed)
		}
		converted := strings.Count(strings.Join(notes, "\n"), " -> ")
		for i := range before {
			if !bytes.Equal(before[i], after[i]) {
				converted--
			}
		}
		if converted > 0 || !files[0].Changed && converted != 0 {
			t.Errorf("%d objects more are said to be converted", converted)
		}
		if again, _, err := conversion.Convert(files, opts); err != nil || !bytes.Equal(again[0].Data, files[0].Data) {
			t.Errorf("the second conversion: %v: %s", err, files[0].Data)
		}
	})
}

// objects returns the documents of a file, and the items of its lists, as JSON.
func objects(t *testing.T, data []byte) (all [][]byte) {
	t.Helper()
	documents, err := yamlfile.Read("f", data)
	if err != nil {
		t.Fatalf("%v: %q", err, data)
	}
	for _, d := range documents {
		begin, end := d.Range()
		text, err := yaml.YAMLToJSON(data[begin:end])
		must.Succeed(t, err)
		var list struct {
			Kind  string `json:"kind"`
			Items []any  `json:"items"`
		}
		if yaml.Unmarshal(text, &list) != nil || list.Kind != "List" {
			all = append(all, text)
			continue
		}
		for _, item := range list.Items {
			text, err := yaml.Marshal(item)
			must.Succeed(t, err)
			all = append(all, text)
		}
	}
	return all
}
