package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// inquiry has the state while one Diagnosis is made.
type inquiry struct {
	Diagnosis

	reader   client.Reader
	object   report.Object
	fields   spec.Fields
	clouds   *providers.Set // made without the settings of the controller, which are not known here
	accounts auth.Accounts
	ready    metav1.Condition // zero if the controller has not judged the present spec
	used     *meta.Identity   // the identity that the controller used; nil for none

	key        auth.Key             // zero if there is no token, or if its key is not known
	source     string               // describes where the chain's first identity gets its session
	identities *identity.Identities // AWS identities of the chain; nil if no chain can be followed
	asked      bool                 // whether askChain was called
	answer     error                // the error that askChain returned
	failed     error                // why the chain could not be read
}

// Of explains the credential of an object that was read with the given reader. It returns an error
// if the object's kind has no identity fields, or if the cluster does not answer. A refused object
// or a forbidden read is no error: the diagnosis says so.
func Of(ctx context.Context, reader client.Reader, o report.Object) (*Diagnosis, error) {
	if !Knows(o.Kind) {
		return nil, fmt.Errorf("objects of kind %s have no identity fields", o.Kind.Kind)
	}
	clouds, err := providers.New(providers.Config{})
	if err != nil {
		return nil, err
	}
	defer clouds.Close()
	row := report.Of(o)
	q := &inquiry{
		Diagnosis: Diagnosis{Kind: row.Kind, Namespace: row.Namespace, Name: row.Name, Result: row.Result, Reason: row.Reason, Message: row.Message},
		reader:    reader, object: o, clouds: clouds, accounts: kube.NewLive(reader), used: o.Used(),
	}
	if o.Kind.Fields != nil {
		q.fields = o.Kind.Fields(o.Resource)
	}
	status := o.GetStatus()
	ready := apimeta.FindStatusCondition(status.Conditions, meta.ConditionReady)
	if ready != nil && status.ObservedGeneration == o.GetGeneration() && ready.Reason != meta.ReasonSuspended {
		q.ready = *ready
	}
	run := q.run
	if o.Kind.Account != nil {
		run = q.runAccount
	}
	if err := run(ctx); err != nil {
		return nil, err
	}
	q.clean()
	return &q.Diagnosis, nil
}

// run finds the steps to the credential in order: subject, account, proof, exchange, credential.
func (q *inquiry) run(ctx context.Context) error {
	rules := q.rules()
	id, err := spec.Resolve(ctx, q.fields, rules)
	if err == nil {
		q.askSettings(ctx, rules, id)
	}
	switch {
	case q.failed != nil:
		return q.failed
	case err != nil:
		if q.asked { // the refusal comes from a grant in the chain, not from the object's fields
			q.Subject, q.From = rules.Named(q.fields).String(), "spec.identityRef"
		}
		q.refuse(err)
	default:
		if err := q.follow(ctx, id); err != nil {
			return err
		}
	}
	q.compare()
	q.advise()
	return nil
}

// rules returns the rules of the most permissive controller, whose flags allow everything that a
// flag can allow. An object that these rules refuse is refused by every controller.
func (q *inquiry) rules() spec.Rules {
	rules := spec.Rules{Providers: q.clouds.Names(), TokenServer: true, ControllerNamespaces: grant.Namespaces{All: true}}
	if repository, err := oci.ParseField(q.object.Kind.AddressField, q.fields.Address); err == nil {
		// Allow the object's own host, because --controller-credential-hosts may list it. If the
		// host is malformed, ParseAllowed returns an error and allows no host. This is right,
		// because no flag can allow a malformed host.
		rules.CredentialHosts, _ = endpoint.ParseAllowed(repository.Host())
	}
	if q.fields.IdentityRef != nil {
		rules.AWSIdentities = q.lends
	}
	// If the status names a ServiceAccount but the spec does not, the controller has used its
	// --default-service-account. So the account in the status is the default. If the spec names a
	// ServiceAccount too, setting a default is harmless: it has no effect.
	if account, ok := q.usedAccount(); ok {
		rules.DefaultServiceAccount = account
	}
	return rules
}

// usedAccount returns the ServiceAccount of the object's namespace that the controller used for the
// present spec.
func (q *inquiry) usedAccount() (name string, ok bool) {
	if q.ready.Status != metav1.ConditionTrue || q.used == nil {
		return "", false
	}
	subject, err := auth.ParseSubject(q.used.Subject)
	return subject.Name(), err == nil && subject.Kind() == auth.KindServiceAccount && subject.Namespace() == q.fields.Namespace
}

// lends checks whether the namespace may use the chain of an AWS identity. It returns nil if all
// grants admit the namespace. It also returns nil if the answer cannot be found out, for example
// because the caller may not read the chain. Otherwise it returns why the namespace may not use the
// chain, or the error with which reading the chain failed.
func (q *inquiry) lends(ctx context.Context, namespace string, subject auth.Subject) error {
	if !q.asked {
		q.asked, q.answer = true, q.askChain(ctx, namespace, subject)
	}
	return q.answer
}

func (q *inquiry) askChain(ctx context.Context, namespace string, subject auth.Subject) error {
	known, err := identity.Live(ctx, q.reader, q.accounts, namespace, subject)
	switch {
	case apierrors.IsForbidden(err), auth.CodeOf(err) == auth.CodeProofDenied:
		q.unknown("the chain and its grants: %v", err)
		return nil
	case err != nil:
		q.failed = err
		return err
	}
	for i, g := range known.Grants(ctx, namespace, subject) {
		if i == 0 {
			q.source = g.Source
		}
		step := g.Identity
		if g.RoleARN != "" {
			step += ", role " + g.RoleARN
		}
		answer := "does not admit the namespace"
		if g.Admits {
			answer = "admits the namespace"
		}
		q.Chain = append(q.Chain, fmt.Sprintf("%s, with %s: %s (%s)", step, g.Source, answer, g.Why))
	}
	err = known.Admits(ctx, namespace, subject)
	if identity.ReasonOf(err) == meta.ReasonStaticIdentityNotForSources {
		q.unknown("the chain ends in static keys, which the controller reads only with --identity-secret-namespace; this command never reads them")
		return nil
	}
	q.identities = known
	return err
}

// askSettings lists the controller's flags that could change the object's identity. To find them,
// it changes one flag at a time and resolves the identity again. If the object's status shows that
// the flags allowed the identity, it lists no flag.
func (q *inquiry) askSettings(ctx context.Context, rules spec.Rules, id spec.Identity) {
	if !q.object.Kind.Fetches() || q.settled(id) {
		return
	}
	var flags []string
	for _, setting := range []struct {
		flag string
		set  func(*spec.Rules)
	}{
		{"--default-service-account", func(r *spec.Rules) { r.DefaultServiceAccount = "default" }},
		{"--require-service-account-for-provider-auth", func(r *spec.Rules) { r.RequireServiceAccount = true }},
		{"--controller-identity-namespaces", func(r *spec.Rules) { r.ControllerNamespaces = grant.Namespaces{} }},
		{"--controller-credential-hosts", func(r *spec.Rules) { r.CredentialHosts = endpoint.Allowed{} }},
		{"--aws-identities", func(r *spec.Rules) {
			if r.AWSIdentities != nil {
				r.AWSIdentities = nil
				return
			}
			r.AWSIdentities = q.lends
		}},
		{"--feature-gates", func(r *spec.Rules) { r.ControllerOnly = true }},
		{"--identities-at-hub", func(r *spec.Rules) { r.IdentitiesAtHub = true }},
		{"--keyring-namespace", func(r *spec.Rules) { r.TokenServer = false }},
	} {
		other := rules
		setting.set(&other)
		if answer, err := spec.Resolve(ctx, q.fields, other); err != nil || answer != id {
			flags = append(flags, setting.flag)
		}
	}
	if q.fields.IdentityRef == nil && !slices.Contains(flags, "--aws-identities") {
		// The object uses no chain. The chain was read only to find out whether --aws-identities
		// decides the identity.
		q.Chain = nil
	}
	if len(flags) > 0 {
		q.unknown("flags of the controller decide too, which only its administrator sees: %s", strings.Join(flags, ", "))
	}
}

// settled reports whether the object's status shows that the controller's flags allowed the
// identity.
func (q *inquiry) settled(id spec.Identity) bool {
	if id.Subject == auth.Controller() && (q.ready.Status != metav1.ConditionTrue || q.used == nil || q.used.Subject != id.Subject.String()) {
		return false
	}
	switch auth.Code(q.ready.Reason) {
	case auth.CodeNotGranted, auth.CodeOptionUnsupported, "", meta.ReasonProgressing:
		return false
	default:
		return true
	}
}

// follow records the subject of the identity, and which field or flag decided it. It then finds out
// how the subject gets its credential.
func (q *inquiry) follow(ctx context.Context, id spec.Identity) error {
	q.Subject = id.Subject.String()
	switch {
	case id.Source == spec.Anonymous:
		q.Subject, q.From = "nobody", "no field: none names a credential"
		q.Proof, q.Credential = "none", "none: requests are anonymous"
	case id.Source == spec.StaticSecret:
		q.Subject, q.From = "secret:"+q.Namespace+":"+id.SecretName, "spec.secretRef"
		q.Proof, q.Credential = "none", "what is stored in Secret "+id.SecretName+", which this command does not read"
	case id.Source == spec.PullSecrets:
		q.Subject, q.From = "the imagePullSecrets of ServiceAccount "+id.ServiceAccountName, "spec.serviceAccountName"
		return q.pullSecrets(ctx, id.ServiceAccountName)
	case id.Credential.SPIFFE():
		q.From = "spec.credential.type"
		q.svid(id)
	case id.Subject == auth.Controller() && !q.settled(id):
		q.Subject, q.From = "unknown", "no field: the controller's flags decide"
	default:
		q.From = q.decider(id)
		return q.minted(ctx, id)
	}
	return nil
}

// decider names the field or the flag that decided the subject.
func (q *inquiry) decider(id spec.Identity) string {
	switch {
	case id.Subject == auth.Controller():
		return "no field: the controller lends its own identity, as status.identity shows"
	case id.Defaulted:
		return "--default-service-account of the controller, as status.identity shows"
	case id.Subject.Kind() == auth.KindWorkloadIdentity:
		return "spec.workloadIdentityName"
	case id.Subject.Kind() == auth.KindServiceAccount:
		return "spec.serviceAccountName"
	default:
		return "spec.identityRef"
	}
}

// pullSecrets describes the account, and the credential from the account's image pull secrets.
func (q *inquiry) pullSecrets(ctx context.Context, name string) error {
	account, err := q.readAccount(ctx, name)
	if err != nil {
		return err
	}
	if account != nil {
		var names []string
		for _, ref := range account.ImagePullSecrets {
			names = append(names, ref.Name)
		}
		q.Credential = "the first entry for the registry in the Secrets " + cmp.Or(strings.Join(names, ", "), "of the account, which names none") +
			"; this command does not read them"
	}
	q.Proof = "none"
	return nil
}

// readAccount reads a ServiceAccount, and describes the account in Account. The result is nil if the
// caller may not read the account, or if the account does not exist. The diagnosis then says so.
func (q *inquiry) readAccount(ctx context.Context, name string) (*corev1.ServiceAccount, error) {
	account := &corev1.ServiceAccount{}
	err := q.reader.Get(ctx, client.ObjectKey{Namespace: q.Namespace, Name: name}, account)
	switch {
	case apierrors.IsForbidden(err):
		q.unknown("you may not read ServiceAccount %s/%s: get on serviceaccounts is missing", q.Namespace, name)
		return nil, nil //nolint:nilnil // documented
	case apierrors.IsNotFound(err):
		q.refuse(&auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound, Fix: "create ServiceAccount " + q.Namespace + "/" + name,
			Err: fmt.Errorf("ServiceAccount %s/%s does not exist", q.Namespace, name),
		})
		return nil, nil //nolint:nilnil // documented
	case err != nil:
		return nil, fmt.Errorf("read ServiceAccount %s/%s: %w", q.Namespace, name, err)
	}
	q.Account = "found, UID " + string(account.UID)
	return account, nil
}

// refuse records the error in Refusal, as the reason why the object gets no credential. Settings of
// the controller, which are not known here, can prevent some errors. So refuse adds the error to
// Unknown instead in two cases:
//   - The condition Ready is true, and not every controller returns this error.
//   - The error depends on the controller's settings, and the condition Ready has another reason.
func (q *inquiry) refuse(err error) {
	code := auth.CodeOf(err)
	// With one of these two errors, every controller refuses the object, whatever its settings. So
	// the error is a refusal even if the condition Ready is still true.
	decides := code == auth.CodeSubjectNotFound || code == auth.CodeNotGranted
	elsewhere := code == auth.CodeEndpointRefused && q.fields.Provider != aws.ProviderName
	if q.ready.Status == metav1.ConditionTrue && !decides || (elsewhere || code == auth.CodeRegionMissing) && q.ready.Reason != string(code) {
		q.unknown("a controller without settings of its own would refuse the object: %v", err)
		return
	}
	q.Refusal = err.Error()
	if refusal, ok := errors.AsType[*auth.Error](err); ok && refusal.Fix != "" {
		q.Refusal, q.NextStep = strings.TrimSuffix(q.Refusal, "; "+refusal.Fix), refusal.Fix
	}
}

// unknown adds to Unknown a fact that affects the credential but is not known here.
func (q *inquiry) unknown(format string, args ...any) {
	q.Unknown = append(q.Unknown, fmt.Sprintf(format, args...))
}

// advise says what to do.
func (q *inquiry) advise() {
	object := strings.ToLower(q.Kind) + "/" + q.Name
	wait, does := "wait for the controller", "fetches"
	if q.object.Kind.Account != nil {
		does = "applies"
	}
	if q.object.Kind.Fetches() {
		wait += ", or have it fetch now: lanyard reconcile " + object
	}
	switch {
	case q.Result == report.Suspended:
		q.NextStep = "lanyard resume " + object + " " + does + " again"
	case q.NextStep != "":
	case q.Changed != "" || q.Result == report.Pending:
		q.NextStep = wait
	case q.ready.Status == metav1.ConditionTrue:
		q.NextStep = "nothing to do"
	default:
		q.NextStep = "do what the message says at its end; docs/errors.md explains the reason " + q.Reason
	}
}
