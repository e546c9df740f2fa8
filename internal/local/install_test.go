package local

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestEstablished reads CRDs as the API server serves them: soon after their creation, and later.
func TestEstablished(t *testing.T) {
	for status, want := range map[string]bool{
		"{}":                           false,
		"{status: {conditions: null}}": false,
		"{status: {conditions: [{type: NamesAccepted, status: 'True'}]}}":                                      false,
		"{status: {conditions: [{type: Established, status: 'False'}]}}":                                       false,
		"{status: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'True'}]}}": true,
	} {
		crd := &unstructured.Unstructured{}
		must.Succeed(t, yaml.Unmarshal([]byte(status), &crd.Object))
		if got, err := established(crd); got != want || err != nil {
			t.Errorf("%s: %t, %v", status, got, err)
		}
	}
}
