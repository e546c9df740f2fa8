package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// attempt is an object that a tenant's account may not write.
type attempt struct {
	apiVersion, kind, resource string
	namespace, name            string // the namespace is empty for a cluster-scoped kind
	fields                     string // further fields of the manifest, as YAML
}

// manifest returns the object as YAML.
func (a attempt) manifest() string {
	namespace := ""
	if a.namespace != "" {
		namespace = ", namespace: " + a.namespace
	}
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s%s}\n%s", a.apiVersion, a.kind, a.name, namespace, a.fields)
}

// path returns the path of the object at the API server.
func (a attempt) path() string {
	path := "/apis/" + a.apiVersion
	if a.apiVersion == "v1" {
		path = "/api/v1"
	}
	if a.namespace != "" {
		path += "/namespaces/" + a.namespace
	}
	return path + "/" + a.resource + "/" + a.name
}

// attempts returns objects with which a tenant would have more rights, or would reach others.
func attempts(own, foreign string) []attempt {
	const admin = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects: [{kind: ServiceAccount, name: deployer, namespace: apply-attempts}]\n"
	const everything = "rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]\n"
	const hook = "webhooks: []\n"
	return []attempt{
		// More rights.
		{"rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", "", "attempt", everything},
		{"rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", "", "cluster-admin", everything},
		{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", "", "attempt", admin},
		{"rbac.authorization.k8s.io/v1", "Role", "roles", own, "attempt", everything},
		{"rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", own, "attempt", admin},
		{"rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", "kube-system", "attempt", admin},
		{"certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", "", "attempt", "spec: {request: aGk=, signerName: kubernetes.io/kube-apiserver-client, usages: [client auth]}\n"},
		// Rules for everybody.
		{"v1", "Namespace", "namespaces", "", "attempt", ""},
		{"v1", "Namespace", "namespaces", "", own, ""},
		{"apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", "", "attempts.example.com", ""},
		{"apiregistration.k8s.io/v1", "APIService", "apiservices", "", "v1.example.com", ""},
		{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "", "attempt", hook},
		{"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "", "attempt", hook},
		{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "", "attempt", ""},
		{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", "", "attempt", ""},
		{"flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "flowschemas", "", "attempt", ""},
		{"flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", "", "attempt", ""},
		{"scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "", "attempt", "value: 1000000\n"},
		{"storage.k8s.io/v1", "StorageClass", "storageclasses", "", "attempt", "provisioner: example.com/none\n"},
		{"networking.k8s.io/v1", "IngressClass", "ingressclasses", "", "attempt", ""},
		{"node.k8s.io/v1", "RuntimeClass", "runtimeclasses", "", "attempt", "handler: none\n"},
		{"v1", "PersistentVolume", "persistentvolumes", "", "attempt", ""},
		{"v1", "Node", "nodes", "", "attempt", ""},
		// Others.
		{"v1", "ConfigMap", "configmaps", foreign, "one", "data: {key: stolen}\n"},
		{"v1", "Secret", "secrets", foreign, "attempt", ""},
		{"v1", "ServiceAccount", "serviceaccounts", foreign, deployer, ""},
		{"apps/v1", "Deployment", "deployments", foreign, "attempt", ""},
		{"v1", "Secret", "secrets", "kube-system", "attempt", ""},
		{"v1", "ConfigMap", "configmaps", "kube-system", "extension-apiserver-authentication", ""},
		{"v1", "Service", "services", metav1.NamespaceDefault, "kubernetes", ""},
		{"discovery.k8s.io/v1", "EndpointSlice", "endpointslices", metav1.NamespaceDefault, "kubernetes", ""},
		{"coordination.k8s.io/v1", "Lease", "leases", local.Namespace, applyController, ""},
		{"apps/v1", "Deployment", "deployments", local.Namespace, applyController, ""},
		{"v1", "ServiceAccount", "serviceaccounts", local.Namespace, applyController, ""},
		// Lanyard.
		{"toolkit.lanyard.dev/v1alpha1", "Kustomization", "kustomizations", foreign, "attempt", ""},
		{"toolkit.lanyard.dev/v1alpha1", "Kustomization", "kustomizations", own, "attempt", ""},
		{"toolkit.lanyard.dev/v1alpha1", "OCIRepository", "ocirepositories", foreign, "attempt", ""},
		{"identity.lanyard.dev/v1alpha1", "KeyRing", "keyrings", local.Namespace, "lanyard", ""},
		{"identity.lanyard.dev/v1alpha1", "WorkloadIdentity", "workloadidentities", foreign, "attempt", ""},
		{"identity.lanyard.dev/v1alpha1", "AWSClusterStaticIdentity", "awsclusterstaticidentities", "", "attempt", ""},
	}
}

// TestKustomizationAttempts publishes objects that the tenant's account may not write. The API server
// refuses each of them as the tenant: its audit log names the account.
func TestKustomizationAttempts(t *testing.T) {
	alone(t, "the chart grants more for the apply controller")
	const own, foreign = "apply-attempts", "apply-victim"
	files := map[string]string{"honest/one.yaml": configMapOf("one", "first")}
	all := attempts(own, foreign)
	for i, a := range all {
		files[fmt.Sprintf("%02d/attempt.yaml", i)] = a.manifest()
	}
	tn := newApplyTenant(t, own, files)
	victim := newApplyTenant(t, foreign, map[string]string{"one.yaml": configMapOf("one", "honest")})
	startApplying(t, nil, tn, victim)
	honest := victim.kustomization("app")
	create(t, honest)
	await(t, honest, "it is applied", applied(foreign+"_one__ConfigMap"))
	quiet := func(name string) *v1alpha1.Kustomization {
		o := tn.kustomization(name)
		o.Spec.TargetNamespace, o.Spec.Interval.Duration = "", time.Hour
		o.Spec.RetryInterval = &metav1.Duration{Duration: time.Hour}
		return o
	}
	user := "system:serviceaccount:" + own + ":" + deployer
	var tried []*v1alpha1.Kustomization
	for i := range all {
		o := quiet(fmt.Sprintf("attempt-%02d", i))
		o.Spec.Path = fmt.Sprintf("./%02d", i)
		create(t, o)
		tried = append(tried, o)
	}
	for i, o := range tried {
		await(t, o, "it is refused", unapplied(meta.ReasonApplyRefused, all[i].kind+"/", all[i].name+" as "+user, "forbidden"))
	}
	t.Run("reads", func(t *testing.T) {
		for _, namespace := range []string{foreign, "kube-system", local.Namespace} {
			o := quiet("read-" + namespace)
			o.Spec.TargetNamespace, o.Spec.Path, o.Spec.NamePrefix = own, "./honest", namespace+"-"
			o.Spec.HealthChecks = []v1alpha1.HealthCheck{{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: "attempt"}}
			create(t, o)
			await(t, o, "it is refused", unapplied(meta.ReasonHealthCheckFailed, "get Secret/"+namespace+"/attempt as "+user, "forbidden"))
		}
	})
	t.Run("a forged inventory", func(t *testing.T) {
		o := quiet("forged")
		o.Spec.TargetNamespace, o.Spec.Path, o.Spec.Suspend = own, "./honest", true
		create(t, o)
		before := o.DeepCopy()
		o.Status.Inventory = &v1alpha1.Inventory{Entries: []v1alpha1.InventoryEntry{
			{ID: foreign + "_one__ConfigMap", Version: "v1"}, {ID: "kube-system_extension-apiserver-authentication__ConfigMap", Version: "v1"},
		}}
		must(t, "forge the inventory", objects.Status().Patch(t.Context(), o, client.MergeFrom(before)))
		patch(t, o, func(o *v1alpha1.Kustomization) { o.Spec.Suspend = false })
		await(t, o, "it is refused", unapplied(meta.ReasonApplyRefused, "ConfigMap/", "as "+user, "forbidden"))
		patch(t, o, func(o *v1alpha1.Kustomization) { o.Spec.Suspend = true }) // otherwise its deletion is refused, too
	})
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: foreign, Name: "one"}}
	await(t, one, "the other tenant's object is as it was", valueOf("honest"))
	refused := map[string]bool{}
	for _, e := range auditLogOf(t, world) {
		if e.ImpersonatedUser != nil && e.ImpersonatedUser.Username == user && e.ResponseStatus.Code == http.StatusForbidden {
			path, _, _ := strings.Cut(e.RequestURI, "?")
			refused[e.Verb+" "+path] = true
		}
	}
	for _, a := range all {
		if !refused["patch "+a.path()] {
			t.Errorf("the audit log does not have that %s was refused %s", user, a.path())
		}
	}
	if err := objects.Get(t.Context(), client.ObjectKey{Name: "attempt"}, &rbacv1.ClusterRole{}); !apierrors.IsNotFound(err) {
		t.Errorf("a ClusterRole of the tenant: %v", err)
	}
	judgeImpersonation(t)
}
