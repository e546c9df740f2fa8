//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package crd_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/config/admission/admissiontest"
	"github.com/lanyard-dev/lanyard/config/crd/crdtest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	controllerIdentities = "identity.lanyard.dev_awsclustercontrolleridentities.yaml"
	roleIdentities       = "identity.lanyard.dev_awsclusterroleidentities.yaml"
	staticIdentities     = "identity.lanyard.dev_awsclusterstaticidentities.yaml"
	accountIdentities    = "identity.lanyard.dev_awsserviceaccountidentities.yaml"
	awsClusters          = "infrastructure.lanyard.dev_awsclusters.yaml"
)

// TestAWSFormats checks which objects the schemas of AWS identities and AWSClusters accept. Each
// object is named "default", because an AWSClusterControllerIdentity must have that name.
func TestAWSFormats(t *testing.T) {
	const arn = `"roleARN":"arn:aws:iam::123456789123:role/team/CAPARole"`
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, row := range []struct {
		file, spec string
		says       string // part of the refusal; empty if the object is accepted
	}{
		{controllerIdentities, ``, ""},
		{controllerIdentities, `"sourceOnly":true`, ""},
		{controllerIdentities, `"allowedNamespaces":{"list":["*"]}`, "wildcards do not exist"},
		{controllerIdentities, `"allowedNamespaces":{"selector":{"matchExpressions":[{"key":"a b","operator":"Exists"}]}}`, "key must be the key of a label"},
		{controllerIdentities, `"allowedNamespaces":{"selector":{"matchExpressions":[{"key":"-123-foo","operator":"Exists"}]}}`, "key must be the key of a label"},
		{controllerIdentities, `"allowedNamespaces":{"selector":{"matchExpressions":[{"key":"a","operator":"Gt"}]}}`, "Unsupported value"},
		{controllerIdentities, `"allowedNamespaces":{"selector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`, "need at least one value"},
		{controllerIdentities, `"allowedNamespaces":{"selector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}}`, "take none"},

		{roleIdentities, arn, ""},
		{roleIdentities, arn + `,"sessionName":"cluster-spinner.acme.com","externalID":"7a5b816a-7743-4377-a382-2d695bf1f172","durationSeconds":43200,
			"policyARNs":["arn:aws:iam::123456789123:policy/RestrictedCAPAPolicy","arn:aws:iam::aws:policy/ReadOnlyAccess"],"inlinePolicy":"{\"Version\":\"2012-10-17\"}",
			"tags":{"company":"acme industries","product":""},"transitiveTags":["company"],"sourceIdentity":"lanyard","sessionPer":"Namespace",
			"sourceIdentityRef":{"kind":"AWSClusterStaticIdentity","name":"test-account"}`, ""},
		{roleIdentities, ``, "Required value"},
		{roleIdentities, `"roleARN":"arn:aws:iam::123456789:role/CAPARole"`, "twelve digits"},
		{roleIdentities, `"roleARN":"arn:aws:sts::123456789123:assumed-role/CAPARole/x"`, "must be the ARN of a role"},
		{roleIdentities, `"roleARN":"arn:moon:iam::123456789123:role/CAPARole"`, "must be the ARN of a role"},
		{roleIdentities, arn + `,"durationSeconds":899`, "greater than or equal to 900"},
		{roleIdentities, arn + `,"durationSeconds":43201`, "less than or equal to 43200"},
		{roleIdentities, arn + `,"sessionName":"a b"`, "sessionName must have only"},
		{roleIdentities, arn + `,"sessionName":"a"`, "at least 2"},
		{roleIdentities, arn + `,"sessionName":"` + long(65) + `"`, "Too long"},
		{roleIdentities, arn + `,"externalID":"a&b"`, "externalID must have only"},
		{roleIdentities, arn + `,"policyARNs":["RestrictedCAPAPolicy"]`, "ARNs of managed policies"},
		{roleIdentities, arn + `,"policyARNs":["arn:aws:iam::999999999999:policy/Foreign"]`, "of AWS or of the role's account"},
		{roleIdentities, arn + `,"tags":{"aws:x":"y"}`, "tags must have keys"},
		{roleIdentities, arn + `,"tags":{"` + long(129) + `":"y"}`, "tags must have keys"},
		{roleIdentities, arn + `,"transitiveTags":["company"]`, "must be keys of tags"},
		{roleIdentities, arn + `,"sourceIdentityRef":{"kind":"AWSServiceAccountIdentity","name":"a"}`, "Unsupported value"},
		{roleIdentities, arn + `,"sourceIdentityRef":{"kind":"AWSClusterRoleIdentity","name":"default"}`, "cannot be its own source"},
		{roleIdentities, arn + `,"sessionPer":"Cluster"`, "Unsupported value"},

		{staticIdentities, `"secretRef":{"name":"keys"}`, ""},
		{staticIdentities, `"secretRef":{"name":"keys","namespace":"lanyard-identities"}`, ""},
		{staticIdentities, `"secretRef":{"name":"Keys"}`, "DNS-1123"},
		{staticIdentities, ``, "Required value"},

		{accountIdentities, arn, ""},
		{accountIdentities, arn + `,"audiences":[]`, "at least 1"},
		{accountIdentities, arn + `,"audiences":["a b"]`, "printable ASCII"},
		{accountIdentities, arn + `,"expirationSeconds":599`, "greater than or equal to 600"},
		{accountIdentities, arn + `,"expirationSeconds":86401`, "less than or equal to 86400"},

		{awsClusters, `"region":"eu-west-1"`, ""},
		{awsClusters, `"region":"us-gov-west-1","accountID":"012345678901","identityRef":{"kind":"AWSServiceAccountIdentity","name":"app"}`, ""},
		{awsClusters, ``, "Required value"},
		{awsClusters, `"region":"moon"`, "must be a region of AWS"},
		{awsClusters, `"region":"eu-west-1","accountID":"123456789"`, "twelve digits"},
		{awsClusters, `"region":"eu-west-1","identityRef":{"kind":"Secret","name":"app"}`, "Unsupported value"},
	} {
		t.Run(row.file+" "+row.spec, func(t *testing.T) {
			var object map[string]any
			must.Succeed(t, json.Unmarshal([]byte(`{"metadata":{"name":"default"},"spec":{`+row.spec+`}}`), &object))
			err := crdtest.New(t, row.file).Admit(t.Context(), object).ToAggregate()
			if (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestAWSDefaults checks the defaults that the API server adds. If somebody removes the reference
// to an identity, the API server sets the default reference. So an object is never without an
// identity.
func TestAWSDefaults(t *testing.T) {
	schema := crdtest.New(t, awsClusters)
	object := func(spec map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "test"}, "spec": spec}
	}
	o := object(map[string]any{"region": "eu-west-1", "identityRef": nil})
	if errs := schema.Admit(t.Context(), o); len(errs) > 0 {
		t.Error(errs)
	}
	if ref := o["spec"].(map[string]any)["identityRef"].(map[string]any); ref["kind"] != "AWSClusterControllerIdentity" || ref["name"] != "default" {
		t.Errorf("the default is %v", ref)
	}
	changed := object(map[string]any{"region": "eu-west-1", "identityRef": map[string]any{"kind": "AWSClusterStaticIdentity", "name": "a"}})
	if errs := schema.AdmitUpdate(t.Context(), changed, o); len(errs) > 0 {
		t.Errorf("a change of the reference: %v", errs)
	}
	removed := object(map[string]any{"region": "eu-west-1"})
	if errs := schema.AdmitUpdate(t.Context(), removed, changed); len(errs) > 0 {
		t.Errorf("a removal of the reference: %v", errs)
	}
	if ref := removed["spec"].(map[string]any)["identityRef"].(map[string]any); ref["kind"] != "AWSClusterControllerIdentity" || ref["name"] != "default" {
		t.Errorf("after the removal the reference is %v", ref)
	}
}

// TestSingleton checks that an AWSClusterControllerIdentity must be named "default", so that there
// is only one.
func TestSingleton(t *testing.T) {
	object := map[string]any{"metadata": map[string]any{"name": "test"}, "spec": map[string]any{}}
	err := crdtest.New(t, controllerIdentities).Admit(t.Context(), object).ToAggregate()
	if err == nil || !strings.Contains(err.Error(), "the name must be default") {
		t.Errorf("%v", err)
	}
}

// TestAWSKindsAreRegistered checks that the scheme has a Go type for each kind of the CRDs.
func TestAWSKindsAreRegistered(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{identityv1.AddToScheme, infrav1.AddToScheme} {
		must.Succeed(t, add(scheme))
	}
	for _, file := range []string{controllerIdentities, roleIdentities, staticIdentities, accountIdentities, awsClusters} {
		spec := crdtest.Read(t, file).Spec
		version := identityv1.GroupVersion()
		if spec.Group == infrav1.Group {
			version = infrav1.GroupVersion()
		}
		for _, kind := range []string{spec.Names.Kind, spec.Names.ListKind} {
			if !scheme.Recognizes(version.WithKind(kind)) {
				t.Errorf("the scheme does not know %s", kind)
			}
		}
	}
}

// TestAWSSecrets checks the policy for Secrets with static keys. No message contains a value of the
// Secret.
func TestAWSSecrets(t *testing.T) {
	policy := admissiontest.New(t, "../admission/awssecrets.yaml", "v1")
	for name, c := range map[string]struct {
		kind string
		data map[string]string
		says string
	}{
		"complete":                  {identityv1.SecretTypeAWSStatic, map[string]string{"accessKeyID": "id", "secretAccessKey": "hidden"}, ""},
		"the design's spelling":     {identityv1.SecretTypeAWSStatic, map[string]string{"AccessKeyID": "id", "SecretAccessKey": "hidden"}, ""},
		"both, equal":               {identityv1.SecretTypeAWSStatic, map[string]string{"AccessKeyID": "id", "accessKeyID": "id", "secretAccessKey": "hidden"}, ""},
		"both, different":           {identityv1.SecretTypeAWSStatic, map[string]string{"accessKeyID": "id", "secretAccessKey": "hidden", "SecretAccessKey": "hidden2"}, "both secretAccessKey and SecretAccessKey"},
		"no key":                    {identityv1.SecretTypeAWSStatic, map[string]string{"accessKeyID": "id"}, "no secretAccessKey"},
		"no ID":                     {identityv1.SecretTypeAWSStatic, map[string]string{"secretAccessKey": "hidden"}, "no accessKeyID"},
		"a Secret of somebody else": {"Opaque", map[string]string{"a": "hidden"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string]any{}
			for key, value := range c.data {
				data[key] = base64.StdEncoding.EncodeToString([]byte(value))
			}
			object := map[string]any{
				"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "keys", "namespace": "lanyard-identities"}, "type": c.kind, "data": data,
			}
			refusals := strings.Join(policy.Admit(t, object, nil), "; ")
			if (refusals == "") != (c.says == "") || !strings.Contains(refusals, c.says) || strings.Contains(refusals, "hidden") {
				t.Errorf("%s", refusals)
			}
		})
	}
}

// TestAWSSpecFields checks unknown fields of a spec. The schema keeps an unknown field, and the
// policy refuses it by name. The policy accepts each field of the schema. It also accepts an update
// that does not change the spec.
func TestAWSSpecFields(t *testing.T) {
	policy := admissiontest.New(t, "../admission/awsidentities.yaml", identityv1.Version)
	for file, misspelt := range map[string]string{
		controllerIdentities: "sourceonly", roleIdentities: "inlinePolicies", staticIdentities: "source", accountIdentities: "policyARN",
	} {
		definition := crdtest.Read(t, file)
		known := definition.Spec.Validation.OpenAPIV3Schema.Properties["spec"].Properties
		if len(known) < 2 {
			t.Fatalf("%s has the fields %v", file, known)
		}
		object := func(fields ...string) map[string]any {
			spec := map[string]any{}
			for _, field := range fields {
				spec[field] = "x"
			}
			return map[string]any{
				"apiVersion": "identity.lanyard.dev/v1alpha1", "kind": definition.Spec.Names.Kind, "metadata": map[string]any{"name": "default"}, "spec": spec,
			}
		}
		delete(known, "allowedNamespaces") // TestAWSGrantFields checks this field
		if says := policy.Admit(t, object(slices.Sorted(maps.Keys(known))...), nil); len(says) > 0 {
			t.Errorf("%s: of all its fields the policy says %q", file, says)
		}
		stored := object(misspelt)
		stored["spec"].(map[string]any)["roleARN"] = "arn:aws:iam::111122223333:role/a"
		stored["spec"].(map[string]any)["secretRef"] = map[string]any{"name": "keys"}
		if errs := crdtest.New(t, file).Admit(t.Context(), stored); len(errs) > 0 {
			t.Errorf("%s: %v", file, errs)
		}
		if _, kept := stored["spec"].(map[string]any)[misspelt]; !kept {
			t.Errorf("%s: the API server drops spec.%s", file, misspelt)
		}
		if says := policy.Admit(t, object(misspelt), nil); len(says) != 1 || !strings.HasPrefix(says[0], "spec."+misspelt+": ") {
			t.Errorf("%s: of spec.%s the policy says %q", file, misspelt, says)
		}
		labelled := object(misspelt)
		labelled["metadata"].(map[string]any)["labels"] = map[string]any{"team": "a"}
		if says := policy.Admit(t, labelled, object(misspelt)); len(says) > 0 {
			t.Errorf("%s: of a label the policy says %q", file, says)
		}
		if says := policy.Admit(t, object(misspelt, "other"), object(misspelt)); len(says) == 0 {
			t.Errorf("%s: another unknown field is accepted", file)
		}
	}
}

// TestAWSGrantFields checks unknown fields of spec.allowedNamespaces, of its selector, and of the
// selector's conditions. The schema keeps an unknown field, and the policy refuses it by name.
func TestAWSGrantFields(t *testing.T) {
	const grant, selector, condition = "spec.allowedNamespaces.", "spec.allowedNamespaces.selector.", "spec.allowedNamespaces.selector.matchExpressions."
	policy := admissiontest.New(t, "../admission/awsidentities.yaml", identityv1.Version)
	for _, row := range []struct {
		block string
		says  string // beginning of the refusal; empty if the policy accepts the object
	}{
		{`null`, ""},
		{`{}`, ""},
		{`{"list":null}`, ""},
		{`{"list":["a"],"selector":null}`, ""},
		{`{"list":["a"],"selector":{"matchLabels":{"a":"b"}}}`, ""},
		{`{"selector":{"matchLabels":{"a":"b"},"matchExpressions":null}}`, ""},
		{`{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}`, ""},
		{`{"lst":["a"]}`, grant + "lst: "},
		{`{"list":["a"],"all":true}`, grant + "all: "},
		{`{"a\nb":true}`, "spec.allowedNamespaces: a field is unknown"},
		{`{"selector":{"matchLabels":{"a":"b"},"matchExpresions":[]}}`, selector + "matchExpresions: "},
		{`{"selector":{"matchLabels":{"a":"b"},"MatchExpressions":[]}}`, selector + "MatchExpressions: "},
		{`{"selector":{"matchLabel":{"a":"b"},"matchExpressions":[{"key":"a","operator":"Exists"}]}}`, selector + "matchLabel: "},
		{`{"selector":{"matchExpressions":[{"key":"a","operator":"Exists"},{"key":"a","operator":"Exists","value":["b"]}]}}`, condition + "value: "},
		{`{"selector":{"matchExpressions":[{"key":"a","operator":"Exists","operater":"DoesNotExist"}]}}`, condition + "operater: "},
	} {
		for file, fields := range map[string]string{
			controllerIdentities: ``, roleIdentities: `,"roleARN":"arn:aws:iam::111122223333:role/a"`, staticIdentities: `,"secretRef":{"name":"keys"}`,
		} {
			var object map[string]any
			text := `{"apiVersion":"identity.lanyard.dev/v1alpha1","kind":"` + crdtest.Read(t, file).Spec.Names.Kind + `","metadata":{"name":"default"},` +
				`"spec":{"allowedNamespaces":` + row.block + fields + `}}`
			must.Succeed(t, json.Unmarshal([]byte(text), &object))
			if errs := crdtest.New(t, file).Admit(t.Context(), object); len(errs) > 0 {
				t.Errorf("%s: %s: %v", file, row.block, errs)
			}
			got := strings.Join(policy.Admit(t, object, nil), "\n")
			if (got != "") != (row.says != "") || !strings.HasPrefix(got, row.says) {
				t.Errorf("%s: %s: %q", file, row.block, got)
			}
		}
	}
}
