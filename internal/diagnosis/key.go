package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/bearer"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/clouds/location"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// known is an [auth.Accounts] whose Lookup always returns the given account, so that auth.Resolve
// does not read the account again.
type known struct {
	auth.Accounts

	account auth.Account
}

// Lookup implements [auth.AccountReader].
func (k known) Lookup(context.Context, auth.Subject) (auth.Account, error) { return k.account, nil }

// purpose is what a token is for.
type purpose struct {
	options []auth.Option
	image   string // the repository; empty for none
	host    string // the host that gets the credential; empty if the clients of AWS get it
}

// minted fills in the diagnosis of an identity that needs a token: the account, the key, the
// exchange and the proof.
func (q *inquiry) minted(ctx context.Context, id spec.Identity) error {
	account, ok, err := q.read(ctx, id.Subject)
	if err != nil {
		return err
	}
	p, set, err := q.purpose(id)
	if set != nil {
		defer set.Close()
	}
	if err != nil {
		q.refuse(err)
		return nil
	}
	q.Delivery = "in process, to " + cmp.Or(p.host, "the clients of AWS")
	provider := auth.Provider(new(bearer.Provider))
	if id.Source != spec.Proof {
		if provider, err = set.ByName(id.Provider); err != nil {
			return err
		}
	}
	switch _, tenant := account.Attributes[azure.TenantAnnotation]; {
	case !ok:
		return nil
	case id.Provider == azure.ProviderName && id.Subject.Kind() == auth.KindServiceAccount && !tenant:
		q.unknown("AZURE_TENANT_ID of the controller, the tenant of an account without annotation %s: it is in the key", azure.TenantAnnotation)
		return nil
	}
	key, err := auth.Resolve(ctx, provider, append(p.options, id.Option(known{q.accounts, account}))...)
	if err != nil {
		q.refuse(err)
		return nil
	}
	q.describe(id, key, p)
	if id.Subject == auth.Controller() {
		q.Proof = "none: the environment of the controller has its own identity"
		return nil
	}
	q.prove(ctx, provider, &auth.Request{Key: key, Account: account, ImageRepository: p.image})
	return nil
}

// read reads the account of the subject. The result ok is false if the subject does not exist or is
// not visible.
func (q *inquiry) read(ctx context.Context, subject auth.Subject) (account auth.Account, ok bool, err error) {
	accounts := q.accounts
	switch {
	case subject == auth.Controller():
		return account, true, nil
	case subject.Kind() == auth.KindServiceAccount, subject.Kind() == auth.KindWorkloadIdentity:
	case q.identities == nil:
		return account, false, nil
	default:
		accounts = q.identities.For(q.Namespace)
	}
	account, err = accounts.Lookup(ctx, subject)
	switch auth.CodeOf(err) {
	case "":
		if err != nil {
			return account, false, err
		}
	case auth.CodeProofDenied:
		q.unknown("%v", err)
		return account, false, nil
	case auth.CodeUnreachable, auth.CodeUnavailable, auth.CodeThrottled, auth.CodeResponseInvalid:
		return account, false, err
	default:
		q.refuse(err)
		return account, false, nil
	}
	q.Account = "found, UID " + account.UID
	if len(q.Chain) > 0 {
		return account, true, nil
	}
	for _, name := range slices.Sorted(maps.Keys(account.Attributes)) {
		q.Account += fmt.Sprintf("; %s is %s", name, account.Attributes[name])
	}
	return account, true, nil
}

// purpose returns the options with which the object's controller gets the token, and the host that
// gets the credential. It also returns a set of providers. The set accepts all endpoint hosts that
// a bucket's spec names. The controller's flag --allowed-endpoint-hosts may list these hosts, but
// its value is unknown here.
func (q *inquiry) purpose(id spec.Identity) (p purpose, set *providers.Set, err error) {
	var allowed endpoint.Allowed
	var bucket v1alpha1.BucketSpec
	if q.object.Kind.Bucket != nil {
		bucket = q.object.Kind.Bucket(q.object.Resource)
		_, sts, _ := strings.Cut(id.STSEndpoint, "://")
		sts, _, _ = strings.Cut(sts, "/")
		for _, host := range []string{bucket.Endpoint, sts} {
			if more, err := allowed.With(host); err == nil && host != "" {
				allowed = more
			}
		}
	}
	if set, err = providers.New(providers.Config{AllowedEndpointHosts: allowed}); err != nil {
		return p, nil, err
	}
	switch q.object.Kind.Server {
	case kinds.Buckets:
		place, err := location.Of(set, allowed, bucket)
		if place.Listed {
			q.unknown("--allowed-endpoint-hosts of the controller must list the host of spec.endpoint")
		}
		p.options, p.host = place.Token, place.Host
		return p, set, err
	case kinds.AWS:
		p.options = append(p.options, auth.WithSTSRegion(q.region()))
		return p, set, nil
	case kinds.Registry:
		return q.registryPurpose(id, set)
	default:
		return p, set, fmt.Errorf("objects of kind %s name a server of the unknown sort %q", q.Kind, q.object.Kind.Server)
	}
}

// registryPurpose does the work of [inquiry.purpose] for objects that name a repository.
func (q *inquiry) registryPurpose(id spec.Identity, set *providers.Set) (p purpose, _ *providers.Set, err error) {
	repository, err := oci.ParseField(q.object.Kind.AddressField, q.fields.Address)
	if err != nil {
		return p, set, err
	}
	p.host = repository.Host()
	switch {
	case id.Source == spec.Cloud:
		p.image = repository.Host() + "/" + repository.Name()
		p.options = append(p.options, auth.WithImageRepository(p.image))
	case id.Credential == spec.WorkloadIdentityToken:
		p.options = append(p.options, auth.WithContextObject(auth.ObjectReference{
			APIVersion: q.object.Kind.GroupVersion().String(), Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, UID: string(q.object.GetUID()),
		}))
	}
	return p, set, nil
}

// describe fills in the diagnosis: the key and its digest, the exchange and the credential.
func (q *inquiry) describe(id spec.Identity, key auth.Key, p purpose) {
	q.Key, q.Digest = key.String(), key.Digest()
	if key.IdentityFingerprint != "" {
		q.Digest = ""
		q.unknown("the digest of the key: identityFingerprint is a hash that differs in each process")
	}
	if key.STSEndpoint != "" && id.ProxySecretName != "" {
		q.Digest = ""
		q.unknown("the proxy in Secret %s is part of the key", id.ProxySecretName)
	}
	q.key = key
	as := ""
	if key.Identity != "" {
		as = ", as " + key.Identity
	}
	switch {
	case id.Source == spec.Proof:
		q.Exchange, q.Credential = "none: the proof is the credential", "the token, as bearer"
		if key.Identity != "" {
			q.Credential = "the token, as the password of user " + key.Identity
		}
		return
	case key.Provider == aws.ProviderName && key.STSEndpoint != "":
		q.Exchange = "the token service of spec.sts.endpoint, " + key.STSEndpoint + as
		if _, err := endpoint.ParseSTS(key.STSEndpoint); err != nil {
			q.unknown("--allowed-endpoint-hosts of the controller must list the host of spec.sts.endpoint")
		}
	case key.Provider == aws.ProviderName:
		q.Exchange = "AWS STS in " + key.STSRegion + ", the region of " + q.regionField() + as
		q.unknown("AWS_REGION of the controller (--aws-region): if it is a region of the same partition, AWS STS of that region is used, and the key has it")
	case key.Provider == azure.ProviderName:
		q.Exchange = "Microsoft Entra" + as
		q.unknown("AZURE_AUTHORITY_HOST of the controller: if it names another cloud than the public one, the key has it")
	default:
		q.Exchange = "Google's Security Token Service" + as
		q.unknown("GOOGLE_CLOUD_UNIVERSE_DOMAIN of the controller: if it names another universe than googleapis.com, the key has it")
	}
	switch {
	case p.image != "":
		q.Credential = "user and password of " + p.host
	case key.Provider == aws.ProviderName:
		q.Credential = "a session that signs requests"
	default:
		q.Credential = "an access token, scope " + key.Scopes.String()
	}
}

// region returns the region in the object's spec; empty if the object names no region.
func (q *inquiry) region() string {
	if q.object.Kind.Region == nil {
		return ""
	}
	return q.object.Kind.Region(q.object.Resource)
}

// regionField returns the field that decides the region of AWS STS if the controller has no
// AWS_REGION.
func (q *inquiry) regionField() string {
	if q.region() != "" {
		return "spec.region"
	}
	return q.object.Kind.AddressField
}

// prove says which proof the provider asks for.
func (q *inquiry) prove(ctx context.Context, provider auth.Provider, request *auth.Request) {
	attributes, who := request.Account.Attributes, "the "+string(request.Key.Subject.Kind())
	if request.Key.Provider == gcp.ProviderName && request.Key.Subject.Kind() == auth.KindServiceAccount &&
		attributes[gcp.ProviderAnnotation] == "" && attributes[gcp.FluxProviderAnnotation] == "" {
		// Do not ask the provider: it would use the metadata service of this machine, not of the
		// controller's machine.
		q.Proof = "a token of the ServiceAccount, audience: the workload pool of the GKE cluster in which the controller runs"
		return
	}
	asked, err := provider.GetProofRequest(ctx, request)
	if err != nil {
		q.refuse(err)
		return
	}
	who = cmp.Or(q.source, who)
	if asked.Form == auth.FormToken {
		q.Proof = "a session from " + who
		return
	}
	q.Proof = fmt.Sprintf("a token of %s, audience %s, valid for %.0f minutes",
		who, strings.Join(asked.Audiences, " and "), cmp.Or(asked.Lifetime, auth.ProofLifetime).Minutes())
}

// svid fills in the diagnosis of an object that gets its own SVID. It leaves the cache key empty.
// This key contains the trust domain and the signer, which are unknown here.
func (q *inquiry) svid(id spec.Identity) {
	q.Account = "the object itself, UID " + string(q.object.GetUID())
	q.Exchange = "none: the proof is the credential"
	q.Proof, q.Credential = "an X.509-SVID of the object", "the certificate, as client certificate in TLS"
	if id.Credential == spec.SpiffeJWT {
		q.Proof, q.Credential = "a JWT-SVID of the object, audience "+strings.Join(id.Audiences.Values(), " and "), "the token, as bearer"
	}
	if repository, err := oci.ParseField(q.object.Kind.AddressField, q.fields.Address); err == nil {
		q.Delivery = "in process, to " + repository.Host()
	}
	q.unknown("trust domain and signer, which the KeyRing spiffe in --keyring-namespace or the broker at --spiffe-broker-endpoint decides: they are in the key")
}

// compare finds out whether the next token is for another subject or cloud identity than the last
// token.
func (q *inquiry) compare() {
	if q.used == nil {
		return
	}
	name := func(subject, identity string) string { return strings.TrimSuffix(subject+" as "+identity, " as ") }
	was := name(q.used.Subject, q.used.CloudIdentity)
	q.Used = was + ", at the last use"
	switch now := name(q.key.Subject.String(), q.key.Identity); {
	case q.Key == "": // the next use is unknown or needs no token: nothing to compare
	case now != was:
		q.Changed = "the next use is as " + now + ": something has changed since the last one"
	}
}
