package kube_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// typedIdentity is a WorkloadIdentity in a program's own Go type.
type typedIdentity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		TargetSystem struct {
			Type           string                `json:"type"`
			ProviderConfig *runtime.RawExtension `json:"providerConfig,omitempty"`
		} `json:"targetSystem"`
	} `json:"spec"`
}

func (o *typedIdentity) DeepCopyObject() runtime.Object {
	c := &typedIdentity{TypeMeta: o.TypeMeta, ObjectMeta: *o.DeepCopy(), Spec: o.Spec}
	c.Spec.TargetSystem.ProviderConfig = o.Spec.TargetSystem.ProviderConfig.DeepCopy()
	return c
}

type typedIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []typedIdentity `json:"items"`
}

func (l *typedIdentityList) DeepCopyObject() runtime.Object {
	c := &typedIdentityList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*typedIdentity))
	}
	return c
}

// TestWorkloadIdentitiesOfTheProgramsType checks a program that has its own Go type for identities.
// The program and WorkloadIdentities must share one informer. The informer stores a change in the
// program's cache before it notifies WorkloadIdentities. So a subscriber must find the change in
// the program's cache.
func TestWorkloadIdentitiesOfTheProgramsType(t *testing.T) {
	s := newIssuerServer(t)
	s.put(identityUID, 1, "aws", map[string]any{"iamRoleARN": roleA})
	s.putRing("key-1", "Active")
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, identityGroup)
	scheme.AddKnownTypeWithName(identityGroup.WithKind("WorkloadIdentity"), &typedIdentity{})
	scheme.AddKnownTypeWithName(identityGroup.WithKind("WorkloadIdentityList"), &typedIdentityList{})
	c, err := cluster.New(&rest.Config{Host: s.URL, QPS: -1}, func(o *cluster.Options) {
		o.Scheme, o.MapperProvider, o.Cache = scheme, restMapper, cache.Options{ByObject: kube.WorkloadIdentitiesByObject(issuerRing)}
	})
	must.Succeed(t, err)
	identities, err := kube.WorkloadIdentitiesFromManager(t.Context(), c, kube.WorkloadIdentityOptions{Watched: &typedIdentity{}, KeyRing: issuerRing})
	must.Succeed(t, err)
	startCluster(t, c)
	knows(t, identities, map[string]string{"iamRoleARN": roleA})

	found := make(chan string, 10)
	identities.Subscribe(func(subject auth.Subject) {
		o := &typedIdentity{}
		if err := c.GetCache().Get(t.Context(), client.ObjectKey{Namespace: subject.Namespace(), Name: subject.Name()}, o); err != nil {
			found <- err.Error()
			return
		}
		found <- string(o.Spec.TargetSystem.ProviderConfig.Raw)
	})
	s.put(identityUID, 2, "aws", map[string]any{"iamRoleARN": roleB})
	if got, want := <-found, `{"iamRoleARN":"`+roleB+`"}`; got != want {
		t.Errorf("the program finds %s, want %s", got, want)
	}
	knows(t, identities, map[string]string{"iamRoleARN": roleB})
}
