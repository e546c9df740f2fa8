package token

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/bearer"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// accountWord is the word for the kind ServiceAccount on a command line.
const accountWord = "serviceaccount"

// holder is a source of tokens: an identity, an account, an object or a CI job.
type holder interface {
	fmt.Stringer
	// request gets a token. Empty audiences and a duration of 0 leave the decision to the holder.
	request(ctx context.Context, audiences []string, duration time.Duration) (issued, error)
	// explain prints why services refuse the holder's tokens, if the reason is known.
	explain(ctx context.Context, w io.Writer)
}

// issued is a token or a certificate.
type issued struct {
	answer           any    // for --format=json
	text             string // a JWT, or certificate and key in PEM
	certificate, key string // PEM; empty for a JWT
	expires          time.Time
	user             string // user name for the token; empty for the default
	registry         string // host of the registry that the token is for; may be empty
}

// setCertificate sets a certificate chain and its key, both in PEM, in place of a token.
func (i *issued) setCertificate(chain, key string) {
	i.certificate, i.key = chain, key
	i.text = strings.TrimSuffix(chain+key, "\n")
}

// parseHolder reads KIND/NAME. The returned function makes the holder for a cluster.
func parseHolder(table kinds.Table, args []string) (func(*cluster.Client) holder, error) {
	words := []string{identityWord + "/NAME", accountWord + "/NAME"}
	for _, kind := range table.Where(kinds.Kind.HasSVIDs) {
		words = append(words, strings.ToLower(kind.Kind)+"/NAME")
	}
	if len(args) != 1 {
		return nil, errors.New("name one " + report.AnyOf(words))
	}
	if kind, name, ok := cluster.CutKind(args[0]); ok && (kind == accountWord || kind == accountWord+"s" || kind == "sa") {
		return func(c *cluster.Client) holder { return &account{c, name} }, nil
	}
	if name, ok := parseIdentity(table, args); ok {
		return func(c *cluster.Client) holder { return &identity{Client: c, name: name} }, nil
	}
	t, err := cluster.ParseTarget(table.Where(kinds.Kind.HasSVIDs), args[0])
	if err != nil || t.Kind == identityv1.WorkloadIdentityBindingKind {
		return nil, fmt.Errorf("%q is not %s", args[0], report.AnyOf(words))
	}
	return func(c *cluster.Client) holder { return &objectHolder{c, t} }, nil
}

// account is a ServiceAccount of the command's namespace.
type account struct {
	*cluster.Client

	name string
}

// String returns the account as on a command line: serviceaccount/NAME.
func (a *account) String() string { return accountWord + "/" + a.name }

func (*account) explain(context.Context, io.Writer) {}

// request implements holder. It requires audiences: without them, whoever receives the token could
// use it at the cluster's API server.
func (a *account) request(ctx context.Context, audiences []string, duration time.Duration) (issued, error) {
	if len(audiences) == 0 {
		return issued{}, errors.New("--audiences is required for a ServiceAccount: name the receiver of the token")
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if duration > 0 {
		request.Spec.ExpirationSeconds = new(int64(duration / time.Second))
	}
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.name}}
	err := a.SubResource(tokenResource).Create(ctx, object, request)
	switch {
	case apierrors.IsNotFound(err):
		return issued{}, fmt.Errorf("there is no %s in namespace %s; -n names another namespace", a, a.Namespace)
	case apierrors.IsForbidden(err):
		return issued{}, fmt.Errorf("at %s: %w; the caller needs \"create\" on serviceaccounts/token in namespace %s",
			a.Config.Host, err, a.Namespace)
	case err != nil:
		return issued{}, fmt.Errorf("at %s: %w", a.Config.Host, err)
	}
	request.SetGroupVersionKind(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"))
	token := issued{answer: request, text: request.Status.Token, expires: request.Status.ExpirationTimestamp.Time}
	if err := a.Get(ctx, client.ObjectKeyFromObject(object), object); err == nil { // the caller may have no right to read the account
		subject, err := auth.ServiceAccount(a.Namespace, a.name)
		if err != nil {
			return issued{}, err
		}
		if token.user, err = userOf(subject, object.Annotations, ""); err != nil {
			return issued{}, err
		}
	}
	return token, nil
}

// objectHolder is the holder for an object that uses a registry, such as an OCIRepository. The
// controller logs in at this registry with the object's credential.
type objectHolder struct {
	*cluster.Client

	cluster.Target
}

func (*objectHolder) explain(context.Context, io.Writer) {}

// request implements holder. It gets the same credential that the controller sends to the object's
// registry.
func (s *objectHolder) request(ctx context.Context, audiences []string, duration time.Duration) (issued, error) {
	if len(audiences) > 0 || duration > 0 {
		return issued{}, errors.New("--audiences and --duration are for identities and accounts: an object's spec.credential decides")
	}
	o, err := s.Read(ctx, s.Client)
	if err != nil {
		return issued{}, err
	}
	named, uid := o.Kind.Fields(o.Resource), o.GetUID()
	shown, err := s.resolve(ctx, named)
	if err != nil {
		return issued{}, err
	}
	var token issued
	switch shown.Credential {
	case spec.ServiceAccountToken:
		if token, err = (&account{s.Client, shown.Subject.Name()}).request(ctx, shown.Audiences.Values(), auth.CredentialLifetime); err == nil {
			err = s.refuseOpening(ctx, token)
		}
	case spec.WorkloadIdentityToken:
		token, err = s.identityToken(ctx, shown, uid)
	default:
		token, err = s.svid(ctx, shown.Credential, uid)
	}
	if err != nil {
		return issued{}, err
	}
	token.registry, _, _ = strings.Cut(strings.TrimPrefix(named.Address, "oci://"), "/")
	return token, nil
}

// refuseOpening refuses a token that the cluster accepts as a credential. The object's author
// chooses the registry. The registry could use such a token to act as the ServiceAccount in the
// cluster. The controller refuses the token too.
func (s *objectHolder) refuseOpening(ctx context.Context, token issued) error {
	opens, err := s.Accepts(ctx, auth.NewSecret(token.text))
	if err == nil && opens {
		err = fmt.Errorf("%s: a token for its spec.credential.audiences opens the cluster at %s, "+
			"and a registry that gets the token could use it there; name an audience of the registry's own", s, s.Config.Host)
	}
	return err
}

// identityToken gets a token for the object's registry, of the WorkloadIdentity that the object
// names. If the WorkloadIdentity's target system is a cloud, identityToken returns an error: the
// registry could use the token at that cloud. The controller refuses such a WorkloadIdentity too.
func (s *objectHolder) identityToken(ctx context.Context, shown spec.Identity, uid types.UID) (issued, error) {
	of := &identity{s.Client, shown.Subject.Name(), &tokenv1.ContextObject{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: s.Kind, Namespace: s.Namespace, Name: s.Name, UID: uid,
	}}
	read, err := of.read(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return issued{}, of.refused(ctx, err)
	case err != nil:
		return issued{}, fmt.Errorf("read %s: %w", of, s.Failed(err))
	}
	if _, err := userOf(shown.Subject, read.Annotations, read.Spec.TargetSystem.Type); err != nil {
		return issued{}, fmt.Errorf("%s: %w", s, err)
	}
	return of.request(ctx, shown.Audiences.Values(), auth.CredentialLifetime)
}

// userOf returns the user name that the controller sends with a token of the subject. The user name
// is empty if no annotation has one. target is the targetSystem.type of a WorkloadIdentity, or
// empty. userOf fails if target is a cloud, because the receiver could use the token at that cloud.
func userOf(subject auth.Subject, annotations map[string]string, target string) (string, error) {
	attributes := map[string]string{bearer.TargetAttribute: target}
	if user, named := annotations[bearer.UsernameAnnotation]; named {
		attributes[bearer.UsernameAnnotation] = user
	}
	return new(bearer.Provider).GetIdentity(auth.Account{Subject: subject, Attributes: attributes})
}

// resolve returns the subject, type and audiences of the object's credential, by the rules of the
// controller. It fails if any of these values depends on the controller's flags.
func (s *objectHolder) resolve(ctx context.Context, named spec.Fields) (spec.Identity, error) {
	switch {
	case named.Credential == nil:
		return spec.Identity{}, fmt.Errorf("%s has no spec.credential: its credential comes from a cloud or a Secret, or it has none", s)
	case named.Credential.Type == spec.ServiceAccountToken && named.ServiceAccountName == "":
		return spec.Identity{}, fmt.Errorf("%s names no ServiceAccount, so the controller's flags decide: "+
			"name an account instead, such as %s/default", s, accountWord)
	}
	shown, err := spec.Resolve(ctx, named, spec.Rules{TokenServer: true})
	if err != nil {
		return spec.Identity{}, fmt.Errorf("%s: %w", s, err)
	}
	return shown, nil
}

// svid gets an SVID of the object. For an X.509-SVID, it makes a new key.
func (s *objectHolder) svid(ctx context.Context, form spec.CredentialType, uid types.UID) (issued, error) {
	server, err := tokenServer(s.Config)
	if err != nil {
		return issued{}, fmt.Errorf("connect to %s: %w", s.Config.Host, err)
	}
	request := &tokenv1.SVIDRequest{Spec: tokenv1.SVIDRequestSpec{Type: tokenv1.SVIDType(form), UID: uid}}
	var key []byte
	if request.Spec.Type == tokenv1.SpiffeCertificate {
		if key, request.Spec.PublicKey, err = newKey(); err != nil {
			return issued{}, err
		}
	}
	kind, _ := s.Kinds.Named(s.Kind) // always found: parseHolder has checked the kind
	answer := &tokenv1.SVIDRequest{}
	err = server.Post().Namespace(s.Namespace).Resource(kind.Plural).Name(s.Name).SubResource("svid").Body(request).Do(ctx).Into(answer)
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err):
		return issued{}, fmt.Errorf("at %s nobody issues SVIDs: install Lanyard's chart with spiffe.trustDomain", s.Config.Host)
	case apierrors.IsForbidden(err):
		return issued{}, fmt.Errorf("at %s: %w; bind the ClusterRole lanyard-svid of Lanyard's chart to the caller in namespace %s",
			s.Config.Host, err, s.Namespace)
	case err != nil:
		return issued{}, fmt.Errorf("at %s: %w", s.Config.Host, err)
	}
	answer.SetGroupVersionKind(tokenv1.GroupVersion().WithKind(tokenv1.SVIDRequestKind))
	token := issued{answer: answer, text: answer.Status.Token, expires: answer.Status.ExpirationTimestamp.Time}
	if key != nil {
		token.setCertificate(answer.Status.CertificateChain, string(key))
		token.answer = map[string]any{
			"certificateChain": token.certificate, "privateKey": token.key,
			"spiffeID": answer.Status.SPIFFEID, "expirationTimestamp": answer.Status.ExpirationTimestamp,
		}
	}
	return token, nil
}

// newKey makes a key on the curve P-256. It returns the private half as PEM (PKCS #8) and the
// public half as DER (SubjectPublicKeyInfo).
func newKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	public, err = x509.MarshalPKIXPublicKey(key.Public())
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), public, err
}
