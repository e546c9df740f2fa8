package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth"
)

// MaxProviderConfig is the maximum length, in bytes, of each field that providers read from a
// providerConfig. An identity with a longer value is refused. The limit is the maximum length
// of a role ARN; see [MaxAnnotation].
const MaxProviderConfig = MaxAnnotation

// WorkloadIdentityOptions configure [WorkloadIdentities].
type WorkloadIdentityOptions struct {
	// Informers watch the KeyRing, and the WorkloadIdentities in every namespace that has subjects.
	// Required; [WorkloadIdentitiesFromManager] uses the manager's cache.
	Informers Informers
	// Watched is an empty WorkloadIdentity of the program's own Go type. Set Watched if the program
	// itself reads identities of this type from Informers. Memory then has each identity only once,
	// and a notified subscriber finds the change in the program's own cache. Optional: without
	// Watched, Informers store unstructured objects, whose size [WorkloadIdentitiesByObject]
	// limits.
	Watched client.Object
	// APIReader reads identities live, never from a cache. Required;
	// [WorkloadIdentitiesFromManager] makes one.
	APIReader client.Reader
	// Client creates token requests. The requests are unstructured objects, so the client's scheme
	// need not have the Go types of Lanyard's API. Required; [WorkloadIdentitiesFromManager] makes
	// one.
	Client client.Client
	// KeyRing is the namespace and name of the issuer's KeyRing, whose keys may sign proofs.
	// Required.
	KeyRing types.NamespacedName
}

// WorkloadIdentities reads the WorkloadIdentities of a cluster. Lanyard's token server makes their
// proofs. A WorkloadIdentities is safe for concurrent use.
//
// Each WorkloadIdentity is an [auth.Account] with these attributes:
//
//   - the identity's targetSystem.type, under the name "targetSystem.type";
//   - the fields of providerConfig that the provider for targetSystem.type reads;
//   - the annotation lanyard.dev/registry-username.
//
// The fields of providerConfig for other providers are left out. So a provider never accepts a
// WorkloadIdentity with another targetSystem.type.
type WorkloadIdentities struct {
	index  *index
	ring   *ring
	reader client.Reader
	server tokenServer
}

var _ auth.Accounts = (*WorkloadIdentities)(nil)

// WorkloadIdentitiesFromManager makes a WorkloadIdentities as [NewWorkloadIdentities] does. Options
// that are not set come from the manager, as with [FromManager]. Set [WorkloadIdentitiesByObject]
// in the manager's options to keep its cache small.
func WorkloadIdentitiesFromManager(ctx context.Context, mgr cluster.Cluster, options WorkloadIdentityOptions) (*WorkloadIdentities, error) {
	if err := connect(mgr, "WorkloadIdentities", &options.Informers, &options.APIReader, &options.Client); err != nil {
		return nil, err
	}
	return NewWorkloadIdentities(ctx, options)
}

// NewWorkloadIdentities makes a WorkloadIdentities and starts to watch identities and the KeyRing.
// The cluster must have the CRDs of WorkloadIdentity and KeyRing.
func NewWorkloadIdentities(ctx context.Context, options WorkloadIdentityOptions) (*WorkloadIdentities, error) {
	switch {
	case options.Informers == nil:
		return nil, errors.New("kube: WorkloadIdentityOptions.Informers is required")
	case options.APIReader == nil:
		return nil, errors.New("kube: WorkloadIdentityOptions.APIReader is required")
	case options.Client == nil:
		return nil, errors.New("kube: WorkloadIdentityOptions.Client is required")
	case options.KeyRing.Namespace == "" || options.KeyRing.Name == "":
		return nil, errors.New("kube: WorkloadIdentityOptions.KeyRing is required")
	}
	w := &WorkloadIdentities{
		index:  newIndex(identitySource()),
		reader: options.APIReader,
		server: tokenServer{
			client: options.Client,
			caller: caller{
				read:  "workloadidentities.identity.lanyard.dev",
				token: "workloadidentities/token of token.lanyard.dev",
			},
			value: "issuer.url", invalid: invalidIdentity,
		},
	}
	w.ring = &ring{name: options.KeyRing, changed: func(last, next ringState) {
		if last.lost(next) {
			w.index.notifyAll()
		}
	}}
	watched := cmp.Or[client.Object](options.Watched, identityObject())
	if _, err := watch(ctx, options.Informers, "WorkloadIdentities", watched, w.index); err != nil {
		return nil, err
	}
	if _, err := watch(ctx, options.Informers, "KeyRings", ringObject(), w.ring); err != nil {
		return nil, err
	}
	return w, nil
}

// Lookup implements [auth.AccountReader]. It takes no lock and does not allocate.
func (w *WorkloadIdentities) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	return w.index.lookup(subject)
}

// Subscribe implements [auth.AccountReader] as [Accounts.Subscribe] does. The given function is
// called when an identity is created or deleted, and when its UID or its spec changes. It is called
// for every identity when a key of the issuer is revoked, or leaves the ring while it is valid.
// Tokens whose proof was signed with that key must not be used any more. Two goroutines watch the
// identities and the ring, and may call the function at the same time.
func (w *WorkloadIdentities) Subscribe(changed func(auth.Subject)) { w.index.subscribe(changed) }

// Read implements [auth.Prover] with a live GET. An identity that is being deleted counts as
// deleted.
func (w *WorkloadIdentities) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	if err := checkKind(subject, auth.KindWorkloadIdentity); err != nil {
		return auth.Account{}, err
	}
	return w.index.read(ctx, w.reader, w.server.caller, subject, identityObject())
}

// Revoked reports whether the KeyRing lacks the key or has revoked it, so that its signatures are
// invalid. Revoked returns false until the KeyRing is in memory.
func (w *WorkloadIdentities) Revoked(kid string) bool {
	return w.ring.load().known && w.ring.check(kid) != nil
}

// Prove implements [auth.Prover] with a token request to Lanyard's token server, through the API
// server. It compares the token's claims with the request. It refuses a token if the ring lacks the
// key that signed it, or has revoked this key.
func (w *WorkloadIdentities) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	subject := account.Subject
	if err := cmp.Or(checkKind(subject, auth.KindWorkloadIdentity), checkProofRequest(account, request)); err != nil {
		return nil, err
	}
	token, err := w.mint(ctx, account, request)
	if err != nil {
		return nil, err
	}
	said, err := readClaims(token)
	if err != nil {
		return nil, proofInvalid(subject, err)
	}
	kid, err := keyID(token)
	if err != nil {
		return nil, proofInvalid(subject, err)
	}
	if err := said.checkIdentity(account, request); err != nil {
		return nil, err
	}
	if err := w.ring.check(kid); err != nil {
		return nil, unknownSigner(subject, err)
	}
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: said.expiresAt()}, nil
}

// mint requests a token of an identity.
func (w *WorkloadIdentities) mint(ctx context.Context, account auth.Account, asked auth.ProofRequest) (string, error) {
	subject := account.Subject
	spec := map[string]any{
		"audiences":         anyOf(asked.Audiences),
		"expirationSeconds": int64(cmp.Or(asked.Lifetime, auth.ProofLifetime) / time.Second),
	}
	if object := asked.ContextObject; object != (auth.ObjectReference{}) {
		named := map[string]any{"apiVersion": object.APIVersion, "kind": object.Kind, "name": object.Name, "uid": object.UID}
		if object.Namespace != "" {
			named["namespace"] = object.Namespace
		}
		spec["contextObject"] = named
	}
	request, err := w.server.ask(ctx, "token", "TokenRequest", account, spec)
	if err != nil {
		return "", err
	}
	token, _, err := unstructured.NestedString(request.Object, "status", "token")
	if err != nil || token == "" {
		return "", proofInvalid(subject, errors.New("the token server's answer has no token"))
	}
	return token, nil
}

// invalidIdentity returns the error for a request that the token server found invalid. If the
// identity must be corrected, the code is [auth.CodeIdentityInvalid] or [auth.CodeAudienceRefused].
// The correction then triggers a retry. If the requested lifetime is below the token server's
// minimum, the code is [auth.CodeRefused]. Callers then keep trying, because no event tells them
// that the minimum has changed.
func invalidIdentity(status metav1.Status, subject auth.Subject) *auth.Error {
	at := fmt.Sprintf("WorkloadIdentity %s/%s", subject.Namespace(), subject.Name())
	failed := &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeIdentityInvalid, Fix: "correct " + at,
		Err: fmt.Errorf("the token server refused the request for %s: %s", subject, status.Message),
	}
	switch {
	case about(status, "spec.audiences"):
		failed.Code, failed.Fix = auth.CodeAudienceRefused, "correct spec.audiences of "+at
	case about(status, "spec.expirationSeconds"):
		failed.Code = auth.CodeRefused
		failed.Fix = "raise spec.duration of " + at + ", or have the administrator lower --token-min-duration of the token server"
	}
	return failed
}

// about is true if the refusal concerns the field or a part of the field.
func about(status metav1.Status, field string) bool {
	return status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool {
		return strings.HasPrefix(cause.Field, field)
	})
}

// WorkloadIdentitiesByObject returns the ByObject of [cache.Options] for a manager's cache. The
// cache then stores only those parts of WorkloadIdentities that [WorkloadIdentities] needs, and
// only the KeyRings in the namespace of keyRing.
func WorkloadIdentitiesByObject(keyRing types.NamespacedName) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		identityObject(): {Transform: trimIdentity},
		ringObject():     {Namespaces: map[string]cache.Config{keyRing.Namespace: {}}},
	}
}

const workloadIdentity = string(auth.KindWorkloadIdentity)

func identityGroup() schema.GroupVersion {
	return schema.GroupVersion{Group: "identity.lanyard.dev", Version: "v1alpha1"}
}

func tokenGroup() schema.GroupVersion {
	return schema.GroupVersion{Group: "token.lanyard.dev", Version: "v1alpha1"}
}

func identityObject() *unstructured.Unstructured { return identityKind(workloadIdentity) }

// identityKind returns an empty object of the given kind in the API group of identities.
func identityKind(kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": identityGroup().String(), "kind": kind}}
}

// identityFields returns names of fields in spec.targetSystem.providerConfig of a WorkloadIdentity.
// The target is the type of its target system, such as "aws". The [auth.Provider] for this target
// reads only these fields.
func identityFields(target string) []string {
	switch target {
	case "aws":
		return []string{"iamRoleARN", assumeRoleField}
	case "azure":
		return []string{"clientID", "tenantID"}
	case "gcp":
		return []string{"impersonate", "serviceAccountEmail", "workloadIdentityProvider"}
	default:
		return nil
	}
}

// targetAttribute is the name of the attribute whose value is spec.targetSystem.type.
const targetAttribute = "targetSystem.type"

// identityAnnotations are the annotations of WorkloadIdentities that providers read.
func identityAnnotations() Annotations { return Annotations{usernameAnnotation} }

// identitySource returns the source of WorkloadIdentities.
func identitySource() source {
	return source{subject: auth.WorkloadIdentity, record: func(subject auth.Subject, object any) (record, bool) {
		identity, ok := untyped(object)
		if !ok {
			return record{}, false
		}
		made := record{uid: string(identity.GetUID()), generation: identity.GetGeneration(), attributes: map[string]string{}}
		if target := target(identity); target != "" {
			made.attributes[targetAttribute] = target
		}
		named := identityAnnotations()
		kept := named.keep(identity.GetAnnotations())
		maps.Copy(made.attributes, kept)
		if key := named.tooLong(kept); key != "" {
			made.attributes, made.refused = nil, annotationTooLong(subject, key)
			return made, true
		}
		for name, value := range config(identity) {
			text, ok := value.(string)
			if !ok || len(text) > MaxProviderConfig {
				made.attributes, made.refused = nil, configRefused(subject, name)
				break
			}
			made.attributes[name] = text
		}
		made.fingerprint = fingerprintOf(made.attributes)
		return made, true
	}}
}

// untyped converts a WorkloadIdentity of any Go type to unstructured. It returns false if the
// conversion fails.
func untyped(object any) (*unstructured.Unstructured, bool) {
	if identity, ok := object.(*unstructured.Unstructured); ok {
		return identity, true
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return &unstructured.Unstructured{Object: fields}, err == nil
}

// config yields names and values of fields in an identity's providerConfig. It yields only the
// fields that identityFields names for the identity's target.
func config(identity *unstructured.Unstructured) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, name := range identityFields(target(identity)) {
			value, named, _ := unstructured.NestedFieldNoCopy(identity.Object, "spec", "targetSystem", "providerConfig", name)
			if named && !yield(name, value) {
				return
			}
		}
	}
}

func target(identity *unstructured.Unstructured) string {
	target, _, _ := unstructured.NestedString(identity.Object, "spec", "targetSystem", "type")
	return target
}

func configRefused(subject auth.Subject, field string) error {
	at := fmt.Sprintf("providerConfig.%s of WorkloadIdentity %s/%s", field, subject.Namespace(), subject.Name())
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
		Fix: "set " + at + " to the name of one identity",
		Err: fmt.Errorf("%s: its value is not a string of at most %d bytes", at, MaxProviderConfig),
	}
}

// trimIdentity reduces a WorkloadIdentity to the parts that [identitySource] reads. To bound the
// size, it cuts a value that is too long. The cut value is still too long, so the identity is
// refused.
func trimIdentity(object any) (any, error) {
	full, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	kept := map[string]any{}
	for name, value := range config(full) {
		text, ok := value.(string)
		switch {
		case !ok:
			kept[name] = false // a short stand-in for a value that is not a string
		case len(text) > MaxProviderConfig:
			kept[name] = strings.Clone(text[:MaxProviderConfig+1]) // without a copy, memory would keep the whole value
		default:
			kept[name] = text
		}
	}
	kind := target(full)
	if len(kind) > MaxProviderConfig { // an invalid type: a valid spec.targetSystem.type has at most 63 characters
		kind = strings.Clone(kind[:MaxProviderConfig+1])
	}
	trimmed := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"targetSystem": map[string]any{"type": kind, "providerConfig": kept}},
	}}
	trimmed.SetGroupVersionKind(full.GroupVersionKind())
	trimmed.SetNamespace(full.GetNamespace())
	trimmed.SetName(full.GetName())
	trimmed.SetUID(full.GetUID())
	trimmed.SetAnnotations(identityAnnotations().keep(full.GetAnnotations()))
	trimmed.SetGeneration(full.GetGeneration())
	trimmed.SetResourceVersion(full.GetResourceVersion()) // needed by informers to detect a resync
	trimmed.SetDeletionTimestamp(full.GetDeletionTimestamp())
	return trimmed, nil
}

// checkIdentity refuses a token of another identity, and a token whose audiences or object differ
// from the request. It also refuses an expired token. Its error is an [*auth.Error].
func (c claims) checkIdentity(account auth.Account, request auth.ProofRequest) error {
	subject, in := account.Subject, c.Lanyard.WorkloadIdentity
	withUID := subject.String() + ":" + in.UID
	switch {
	case c.Subject != subject.String() && c.Subject != withUID, in.Namespace != subject.Namespace(), in.Name != subject.Name():
		return proofInvalid(subject, errors.New("it is of another identity"))
	case in.UID != account.UID:
		return replaced(subject, "before its token was made")
	case c.Lanyard.Context.UID != request.ContextObject.UID:
		return proofInvalid(subject, errors.New("it is for another object"))
	}
	return c.checkReceivers(subject, request.Audiences)
}

// identityClaims are claims that Lanyard's issuer puts in a token. They name the token's identity
// and the object that the token is for.
type identityClaims struct {
	WorkloadIdentity objectClaim `json:"workloadIdentity"`
	Context          objectClaim `json:"context"`
}

// objectClaim identifies an object.
type objectClaim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// keyID returns the header kid of a JWT (RFC 7515, section 4.1.4).
func keyID(token string) (string, error) {
	head, _, _ := strings.Cut(token, ".")
	data, err := decodePart(head)
	if err != nil {
		return "", errors.New("its header is not base64url")
	}
	var header struct {
		KID string `json:"kid"`
	}
	if err := json.Unmarshal(data, &header); err != nil || header.KID == "" {
		return "", errors.New("its header names no key")
	}
	return header.KID, nil
}
