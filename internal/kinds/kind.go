// Package kinds is the table of Lanyard's kinds of objects. Code that handles objects of any kind
// ranges over a [Table] and mentions no single kind. A new kind needs:
//
//   - an entry in [All]
//   - a Go type in module api
//   - a reconciler
//   - a line in the program that runs the reconciler
package kinds

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/api/meta"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// Program is the name of a program of Lanyard.
type Program string

// The programs that reconcile objects.
const (
	// Controller fetches artifacts, and so reads data from untrusted servers.
	Controller Program = "lanyard-controller"
	// IdentityController reconciles identities and the Secrets of bindings.
	IdentityController Program = "lanyard-identity-controller"
	// ApplyController applies manifests as tenants.
	ApplyController Program = "lanyard-apply-controller"
	// TokenServer issues tokens and rotates keys.
	TokenServer Program = "lanyard-token-server"
)

// Server is the sort of server that the objects of a kind use.
type Server string

// The sorts of servers.
const (
	// Registry is an OCI registry.
	Registry Server = "registry"
	// Buckets is an object storage service.
	Buckets Server = "buckets"
	// AWS means the APIs of Amazon Web Services in a region.
	AWS Server = "aws"
)

// Resource is an object of any kind, like client.Object of controller-runtime. This package does
// not import controller-runtime: some programs with this package never connect to a cluster.
type Resource interface {
	metav1.Object
	runtime.Object
}

// List is a list of objects of any kind.
type List interface {
	metav1.ListInterface
	runtime.Object
}

// Object is an object with the status that almost all kinds of Lanyard have.
type Object interface {
	Resource

	// GetStatus returns the common part of the status, for reading and writing.
	GetStatus() *meta.Status
}

// Actor is an object that gets a credential to use at a service.
type Actor interface {
	Object

	// GetFetchStatus returns the part of the status with the identity whose credential was used.
	GetFetchStatus() *meta.FetchStatus
}

// Tenant is an object whose spec selects a server. The object acts as a tenant at this server.
type Tenant interface {
	Actor

	// GetSchedule returns the part of the spec that says when the object is reconciled.
	GetSchedule() *toolkitv1.Schedule
	// GetAccess returns the part of the spec that selects the credential for the work.
	GetAccess() *toolkitv1.Access
}

// Keeper is an object that has an artifact in the artifact store.
type Keeper interface {
	Tenant

	// GetPublication returns the part of the spec that says whether the artifact is also published
	// to Flux.
	GetPublication() *toolkitv1.Publication
	// GetArtifactStatus returns the part of the status that has the artifact.
	GetArtifactStatus() *toolkitv1.ArtifactStatus
}

// credentialed is an object whose spec has the field credential.
type credentialed interface {
	GetCredential() *toolkitv1.Credential
}

// Kind describes one kind of objects.
type Kind struct {
	// GroupVersionKind has the names of the kind in manifests. Required.
	schema.GroupVersionKind

	// Plural is the name of the kind in paths of the API server, such as "buckets". Required.
	Plural string
	// Short is the short name for kubectl, such as "lbkt". Required.
	Short string
	// Peers are the API groups of kinds of the same name in other projects. Manifests of these
	// kinds can be converted to Lanyard's kind.
	Peers []string
	// FluxReference is the name of a field in Flux's objects, such as imageRepositoryRef. The field
	// refers to an object of the kind without naming the kind. Empty if there is no such field.
	FluxReference string
	// ClusterScoped says that the objects have no namespace.
	ClusterScoped bool
	// Program is the program that reconciles the objects. Required.
	Program Program

	// New returns an object without content. Required.
	New func() Resource
	// NewList returns a list without items. Required.
	NewList func() List

	// Server is the sort of server in the spec; empty if the spec has no server.
	Server Server
	// AddressField is the path of the field with the server's address, such as "spec.url".
	AddressField string
	// Bucket returns the spec of an object's bucket. Required if Server is Buckets.
	Bucket func(Resource) toolkitv1.BucketSpec
	// Region returns the region in an object's spec, such as "eu-central-1"; empty if the object
	// names no region. The function is nil if the kind has no field for a region.
	Region func(Resource) string
	// Source returns the text that reports show as an object's source. The text names a repository,
	// a bucket or a Secret, for example. Required if Success is set.
	Source func(Resource) string
	// Fields returns a copy of the identity fields of an object, for package auth/spec. Fields is
	// nil if the kind has no identity fields.
	Fields func(Resource) spec.Fields
	// Account returns the name of the ServiceAccount that an object acts as at the API server; empty
	// if the spec names none. The function is nil if objects of the kind do not act there.
	Account func(Resource) string
	// KubeConfig returns the name of the Secret with the kubeconfig file of the cluster in which an object
	// acts; empty for this cluster. Nil: all objects of the kind act in this cluster.
	KubeConfig func(Resource) string
	// Decryption describes how an object decrypts files; nil if the object decrypts nothing. The
	// function is nil if objects of the kind have no encrypted files.
	Decryption func(Resource) *Decryption
	// IdentityRef returns an object's reference to an AWS identity; nil if there is no reference.
	// The function is nil if objects of the kind cannot refer to an AWS identity.
	IdentityRef func(Resource) *spec.IdentityRef
	// OnlyIdentityRef returns an object that has the same reference to an AWS identity, and nothing
	// else. Programs that only count the users of identities store such objects. Required with
	// IdentityRef, unless IdentityController reconciles the objects.
	OnlyIdentityRef func(Resource) Resource
	// WorkloadIdentity returns the name of the WorkloadIdentity that an object uses; empty if it
	// uses none. The function is nil if objects of the kind cannot use a WorkloadIdentity.
	WorkloadIdentity func(Resource) string
	// AWSIdentity says that the objects are AWS identities, to which other objects refer.
	AWSIdentity bool
	// Relation is a CEL expression with the variables object and identity. It is true if the object
	// uses the WorkloadIdentity in the variable identity. Only then may tokens of this
	// WorkloadIdentity name the object as their context. Empty if tokens cannot name objects of the
	// kind.
	Relation string

	// Success is the word in reports for an object that is Ready, such as "Pulled". Empty if
	// reports leave the kind out.
	Success string
	// Found returns the results in the status of an object; nil if there is no result yet. If all
	// fields of the [Found] are zero, the condition Ready is the only result. Required if Success
	// is set.
	Found func(Resource) *Found
}

// Found has the results in the status of an object. Each field may be zero.
type Found struct {
	// Text describes the result in a few words, for the message of the condition Ready.
	Text string
	// Revision is the revision of the artifact.
	Revision string
	// Tags is the number of tags of a repository; nil if no tags were counted.
	Tags *int
	// ExpiresAt is when the credential in a Secret expires; nil if there is no such credential.
	ExpiresAt *metav1.Time
	// CloudIdentity is the cloud identity that the object represents.
	CloudIdentity string
}

// Decryption says how an object decrypts files.
type Decryption struct {
	// Fields are the identity fields of the decryption, for package auth/spec.
	Fields spec.Fields
	// Status says which keys decrypted files last; nil if no file was decrypted.
	Status *toolkitv1.DecryptionStatus
}

// NamedIdentity returns the AWS identity to which an object refers; the zero subject if there is no
// reference. It returns an error if the reference is invalid.
func (k Kind) NamedIdentity(o Resource) (auth.Subject, error) {
	if k.IdentityRef == nil {
		return auth.Subject{}, nil
	}
	ref := k.IdentityRef(o)
	if ref == nil {
		return auth.Subject{}, nil
	}
	return spec.AWSIdentity(ref.Kind, o.GetNamespace(), ref.Name)
}

// GroupResource returns the API group and the plural, which name the kind in the API server's
// errors.
func (k Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}
}

// Fetches reports whether objects of the kind implement [Tenant]. Once per interval, such an object
// acts as a tenant at the server that its spec selects.
func (k Kind) Fetches() bool {
	_, ok := k.New().(Tenant)
	return ok
}

// KeepsArtifacts reports whether the objects have artifacts in the artifact store.
func (k Kind) KeepsArtifacts() bool {
	_, ok := k.New().(Keeper)
	return ok
}

// UsesAWSIdentities reports whether the objects can refer to an AWS identity.
func (k Kind) UsesAWSIdentities() bool { return k.IdentityRef != nil }

// HasSVIDs reports whether the objects can have SVIDs: their spec has the field credential.
func (k Kind) HasSVIDs() bool {
	_, ok := k.New().(credentialed)
	return ok
}

// Acting adds to a Kind the fields that are common to all kinds whose objects implement [Tenant].
// The function k.New must return a [Tenant]. The function address returns the address of the server
// in an object's spec. The fields Program, Relation, Source, Fields and Found are set only if they
// are empty.
func Acting(k Kind, address func(Resource) string) Kind {
	k.Program = cmp.Or(k.Program, Controller)
	k.Relation = cmp.Or(k.Relation, `object.?spec.?workloadIdentityName.orValue('') == identity.metadata.name`)
	k.IdentityRef = of(func(o Tenant) *spec.IdentityRef { return refOf(o.GetAccess().IdentityRef) })
	k.OnlyIdentityRef = of(func(o Tenant) Resource {
		kept := k.New().(Tenant) //nolint:forcetypeassert // see above
		kept.GetAccess().IdentityRef = o.GetAccess().IdentityRef
		return kept
	})
	k.WorkloadIdentity = of(func(o Tenant) string { return o.GetAccess().WorkloadIdentityName })
	if k.Source == nil {
		k.Source = address
	}
	if k.Fields == nil {
		k.Fields = of(func(o Tenant) spec.Fields { return accessFields(k, o, address(o)) })
	}
	if k.Found == nil {
		k.Found = foundArtifact
	}
	return k
}

// accessFields returns the identity fields in the common part of a spec.
func accessFields(k Kind, o Tenant, address string) spec.Fields {
	a := o.GetAccess()
	fields := spec.Fields{
		Kind: auth.Kind(k.Kind), Namespace: o.GetNamespace(), Name: o.GetName(), Address: address,
		Provider: a.Provider, ServiceAccountName: a.ServiceAccountName, WorkloadIdentityName: a.WorkloadIdentityName,
		IdentityRef: refOf(a.IdentityRef), PullSecrets: k.Server == Registry,
		SecretRef: nameOf(a.SecretRef), CertSecretRef: nameOf(a.CertSecretRef), ProxySecretRef: nameOf(a.ProxySecretRef),
		Insecure: a.Insecure,
	}
	if own, ok := o.(credentialed); ok && own.GetCredential() != nil {
		c := own.GetCredential()
		fields.Credential = &spec.Credential{Type: spec.CredentialType(c.Type), Audiences: slices.Clone(c.Audiences)}
	}
	return fields
}

// foundArtifact implements Kind.Found for kinds that keep artifacts.
func foundArtifact(o Resource) *Found {
	keeper, ok := o.(Keeper)
	if !ok || keeper.GetArtifactStatus().Artifact == nil {
		return nil
	}
	revision := keeper.GetArtifactStatus().Artifact.Revision
	return &Found{Text: "stored artifact for revision " + revision, Revision: revision}
}

// of converts a function with a parameter of type O to a function that takes any Resource. The
// result panics for an object of another type, so callers pass only objects of the entry's kind.
func of[O any, R any](f func(O) R) func(Resource) R {
	return func(o Resource) R { return f(o.(O)) }
}

// refOf converts a reference to an AWS identity; nil stays nil.
func refOf(ref *meta.AWSIdentityReference) *spec.IdentityRef {
	if ref == nil {
		return nil
	}
	return &spec.IdentityRef{Kind: ref.Kind, Name: ref.Name}
}

// nameOf returns the name in a reference; nil if there is no reference.
func nameOf(ref *meta.LocalReference) *string {
	if ref == nil {
		return nil
	}
	return new(ref.Name)
}
