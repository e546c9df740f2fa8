package kube

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

// ObjectOptions configure [Objects].
type ObjectOptions struct {
	// Kind is the kind of the objects, one of [svid.Kinds]. Required.
	Kind auth.Kind
	// Watched is an empty object of the type that Informers store for this kind. Default: the
	// objects' metadata.
	Watched client.Object
	// Ring is the KeyRing of the trust domain. Required without Broker.
	Ring *SPIFFERing
	// Broker issues the SVIDs in place of Lanyard's token server; Ring and Client are then not
	// used. Default: the token server.
	Broker SVIDBroker
	// APIAudiences are the audiences that the API server accepts for itself, as
	// [Accounts.APIAudiences] returns them. Broker is never asked for an SVID with these audiences.
	// Required with Broker. Not needed without Broker, because the token server refuses these
	// audiences itself.
	APIAudiences []string
	// Informers watch the objects. Required; [ObjectsFromManager] uses the manager's cache.
	Informers Informers
	// APIReader reads objects live, never from a cache. Required; [ObjectsFromManager] makes one.
	APIReader client.Reader
	// Client creates requests for SVIDs. The requests are unstructured objects, so the client's
	// scheme need not have the Go types of Lanyard's API. Required unless Broker is set;
	// [ObjectsFromManager] makes a client if the field is nil.
	Client client.Client
}

// SVIDBroker issues SVIDs for objects. An example is the client of a SPIFFE broker. Implementations
// are safe for concurrent use.
type SVIDBroker interface {
	// Prove returns an SVID of the account, as [auth.Prover] requires. Callers pass an account that
	// they read from the API server, not from a cache.
	Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error)
}

// Objects implements [auth.Accounts] for the objects of one kind, such as OCIRepository. Each
// object is a subject of its own. Its proofs are SVIDs, which Lanyard's token server or an
// [SVIDBroker] issues. Objects is safe for concurrent use.
type Objects struct {
	kind         auth.Kind
	index        *index
	ring         *SPIFFERing // nil if there is a broker
	reader       client.Reader
	server       tokenServer
	broker       SVIDBroker // nil if the token server is used
	apiAudiences []string   // only set with a broker
}

var _ auth.Accounts = (*Objects)(nil)

// ObjectsFromManager makes an Objects as [NewObjects] does. Options that are not set come from the
// manager, as with [FromManager].
func ObjectsFromManager(ctx context.Context, mgr cluster.Cluster, options ObjectOptions) (*Objects, error) {
	if err := connect(mgr, "objects", &options.Informers, &options.APIReader, &options.Client); err != nil {
		return nil, err
	}
	return NewObjects(ctx, options)
}

// NewObjects makes an Objects and starts to watch the objects.
func NewObjects(ctx context.Context, options ObjectOptions) (*Objects, error) {
	resource, ok := svid.Resource(options.Kind)
	switch {
	case !ok:
		return nil, fmt.Errorf("kube: objects of kind %q cannot have SVIDs", options.Kind)
	case options.Broker == nil && options.Ring == nil:
		return nil, errors.New("kube: ObjectOptions.Ring is required")
	case options.Broker != nil && len(options.APIAudiences) == 0:
		return nil, errors.New("kube: ObjectOptions.APIAudiences is required with a broker")
	case options.Informers == nil:
		return nil, errors.New("kube: ObjectOptions.Informers is required")
	case options.APIReader == nil:
		return nil, errors.New("kube: ObjectOptions.APIReader is required")
	case options.Broker == nil && options.Client == nil:
		return nil, errors.New("kube: ObjectOptions.Client is required")
	}
	o := &Objects{
		kind: options.Kind, index: newIndex(objectSource(options.Kind)), ring: options.Ring, reader: options.APIReader,
		server: tokenServer{
			client: options.Client,
			caller: caller{
				read:  resource + "." + toolkitGroup().Group,
				token: resource + "/svid of " + tokenGroup().Group,
			},
			value: "spiffe.trustDomain", invalid: invalidSVID,
		},
		broker: options.Broker, apiAudiences: slices.Clone(options.APIAudiences),
	}
	watched := cmp.Or[client.Object](options.Watched, objectMetadata(options.Kind))
	if _, err := watch(ctx, options.Informers, "objects of kind "+string(options.Kind), watched, o.index); err != nil {
		return nil, err
	}
	if o.broker == nil {
		o.ring.lost.subscribe(func(*svid.Signers) { o.index.notifyAll() })
	}
	return o, nil
}

// Lookup implements [auth.AccountReader]. It takes no lock and does not allocate.
func (o *Objects) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	return o.index.lookup(subject)
}

// Subscribe implements [auth.AccountReader] as [Accounts.Subscribe] does. The given function is
// called when an object is created or deleted. It is called for every object when
//
//   - a key or an authority is revoked, or leaves the ring while it is valid;
//   - the ring starts or stops signing JWT-SVIDs or X.509-SVIDs;
//   - the trust domain or the issuer changes.
//
// Two goroutines watch the objects and the ring, and may call the function at the same time.
// Revocations by a broker are not reported.
func (o *Objects) Subscribe(changed func(auth.Subject)) { o.index.subscribe(changed) }

// Read implements [auth.Prover] with a live GET of the object's metadata. An object that is being
// deleted counts as deleted.
func (o *Objects) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	if err := o.isKind(subject); err != nil {
		return auth.Account{}, err
	}
	return o.index.read(ctx, o.reader, o.server.caller, subject, objectMetadata(o.kind))
}

// Prove implements [auth.Prover] with a request for an SVID. The request goes to the broker or,
// through the API server, to Lanyard's token server. Prove refuses an SVID from the token server if
// it does not match the request, or if the trust domain's KeyRing does not accept its signer.
func (o *Objects) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	subject := account.Subject
	if err := o.isKind(subject); err != nil {
		return nil, err
	}
	if account.UID == "" || request.ContextObject != (auth.ObjectReference{}) {
		return nil, &auth.Error{
			Stage: auth.StageTokenRequest, Code: auth.CodeOptionUnsupported,
			Fix: "prove only objects that were read, and leave out the context object",
			Err: fmt.Errorf("%s has no UID, or is asked to name another object", subject),
		}
	}
	switch {
	case o.broker != nil:
		return o.proveByBroker(ctx, account, request)
	case request.Form == auth.FormJWT:
		return o.proveByJWT(ctx, account, request)
	case request.Form == auth.FormCertificate:
		return o.proveByCertificate(ctx, account)
	default:
		return nil, checkProofRequest(account, request)
	}
}

// proveByBroker gets an SVID from the broker. It refuses the audiences of the API server. Otherwise
// the receiver of the SVID, whom the tenant chooses, could use the SVID at the API server.
func (o *Objects) proveByBroker(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	if request.Form != auth.FormCertificate {
		if err := checkProofRequest(account, request); err != nil {
			return nil, err
		}
	}
	if err := checkAudiences(request.Audiences, o.apiAudiences); err != nil {
		return nil, err
	}
	return o.broker.Prove(ctx, account, request)
}

// proveByJWT gets a JWT-SVID from the token server.
func (o *Objects) proveByJWT(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	subject := account.Subject
	if err := checkProofRequest(account, request); err != nil {
		return nil, err
	}
	answer, err := o.ask(ctx, account, svid.JWT, map[string]any{"audiences": anyOf(request.Audiences)})
	if err != nil {
		return nil, err
	}
	token := answer.text("token")
	expires, err := svid.CheckJWT(token, answer.id, request.Audiences, time.Now())
	if err != nil {
		return nil, proofInvalid(subject, err)
	}
	said, err := readClaims(token)
	if err != nil {
		return nil, proofInvalid(subject, err)
	}
	if said.Issuer != answer.signers.Issuer {
		return nil, proofInvalid(subject, errors.New("it is of another issuer"))
	}
	kid, err := keyID(token)
	if err != nil {
		return nil, proofInvalid(subject, err)
	}
	if err := o.ring.ring.check(kid); err != nil {
		return nil, unknownSigner(subject, err)
	}
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: expires}, nil
}

// proveByCertificate makes a key and gets an X.509-SVID for it from the token server. The key never
// leaves this program.
func (o *Objects) proveByCertificate(ctx context.Context, account auth.Account) (auth.Proof, error) {
	subject := account.Subject
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	answer, err := o.ask(ctx, account, svid.X509, map[string]any{"publicKey": base64.StdEncoding.EncodeToString(public)})
	if err != nil {
		return nil, err
	}
	chain, err := svid.ParseChain(answer.text("certificateChain"))
	if err != nil {
		return nil, proofInvalid(subject, err)
	}
	now := time.Now()
	if err := svid.CheckChain(chain, answer.id, &key.PublicKey, now); err != nil {
		return nil, proofInvalid(subject, err)
	}
	if err := o.ring.verify(chain, now); err != nil {
		return nil, unknownSigner(subject, err)
	}
	der := make([][]byte, len(chain))
	expires := chain[0].NotAfter
	for i, certificate := range chain {
		der[i] = certificate.Raw
		if certificate.NotAfter.Before(expires) {
			expires = certificate.NotAfter
		}
	}
	return auth.NewCertificate(der, key, expires.UTC()), nil
}

// answer is the token server's answer to a request for an SVID, with the values that it must match.
type answer struct {
	object  *unstructured.Unstructured
	signers svid.Signers
	id      spiffeid.ID
}

// text returns a field of the answer's status, or an empty string if the status lacks the field.
func (a answer) text(field string) string {
	text, _, _ := unstructured.NestedString(a.object.Object, "status", field)
	return text
}

// ask requests an SVID from the token server.
func (o *Objects) ask(ctx context.Context, account auth.Account, form svid.Type, spec map[string]any) (answer, error) {
	signers, err := o.ring.Signers()
	if err != nil {
		return answer{}, err
	}
	id, err := svid.IDOf(signers.TrustDomain, account.Subject)
	if err != nil {
		return answer{}, err
	}
	spec["type"], spec["uid"] = string(form), account.UID
	object, err := o.server.ask(ctx, "svid", "SVIDRequest", account, spec)
	return answer{object, signers, id}, err
}

// invalidSVID returns the error for a request that the token server found invalid. If the audiences
// are invalid, the code is [auth.CodeAudienceRefused]. Otherwise the code is [auth.CodeRefused].
// After CodeRefused callers try again, because the object may have just changed.
func invalidSVID(status metav1.Status, subject auth.Subject) *auth.Error {
	failed := &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeRefused, Fix: "compare the reason with spec.credential of the object",
		Err: fmt.Errorf("the token server refused the request for %s: %s", subject, status.Message),
	}
	if about(status, "spec.audiences") {
		failed.Code, failed.Fix = auth.CodeAudienceRefused, "correct spec.credential.audiences of the object"
	}
	return failed
}

func (o *Objects) isKind(subject auth.Subject) error {
	if subject.Kind() == o.kind && !subject.Lent() {
		return nil
	}
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeSubjectInvalid,
		Fix: "name an object of kind " + string(o.kind) + ", or pass the Prover of that kind of subject",
		Err: fmt.Errorf("%s is not an object of kind %s", subject, o.kind),
	}
}

func toolkitGroup() schema.GroupVersion {
	return schema.GroupVersion{Group: "toolkit.lanyard.dev", Version: "v1alpha1"}
}

func objectMetadata(kind auth.Kind) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: toolkitGroup().String(), Kind: string(kind)}}
}

// objectSource returns the source of the objects of a kind. The index stores only the UID of an
// object. So a change of the object's other fields drops no cached credential. The token server
// reads these fields live.
func objectSource(kind auth.Kind) source {
	return source{
		subject: func(namespace, name string) (auth.Subject, error) { return auth.Object(kind, namespace, name) },
		record: func(_ auth.Subject, object any) (record, bool) {
			known, ok := object.(metav1.Object)
			if !ok {
				return record{}, false
			}
			return record{uid: string(known.GetUID())}, true
		},
	}
}
