package tokenserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/port"
	"github.com/lanyard-dev/lanyard/internal/tokenserver/openapi"
)

// Config are the parts of a [Server]. Preconditions and Audit are optional. At least one of Issuer
// and SVIDs is required. All other parts are required, unless their comment says otherwise.
type Config struct {
	// Address is the address at which the server listens, such as ":8443". Only the API server's
	// front proxy can send requests.
	Address string
	// Certificate is the serving certificate of the server. The API server must trust it.
	Certificate *Certificate
	// Kubernetes reads the API server's settings for forwarded requests.
	Kubernetes kubernetes.Interface
	// Authorizer decides who may do what.
	Authorizer authorizer.Authorizer
	// Preconditions must all hold while tokens are made. The list may be empty.
	Preconditions []*Precondition
	// Issuer decides what tokens of WorkloadIdentities say. If it is nil, the server makes SVIDs
	// only.
	Issuer *issuer.Issuer
	// Clusters determines the claim lanyard.dev.cluster of WorkloadIdentities' tokens.
	Clusters issuer.Clusters
	// Identities reads WorkloadIdentities. Required if Issuer is set.
	Identities Identities
	// Signer signs tokens of WorkloadIdentities. Required if Issuer is set.
	Signer Signer
	// Contexts checks the objects that callers want to use tokens for. Required if Issuer is set.
	Contexts Contexts
	// SVIDs is the issuer of objects' SVIDs; nil if there is no trust domain.
	SVIDs *SVIDs
	// SVIDKinds are the kinds whose objects can have SVIDs. Required if the field SVIDs is set.
	SVIDKinds kinds.Table
	// Metrics count tokens and refusals.
	Metrics *Metrics
	// Audit gets an event of level Metadata for each token request. Default: none, so that only the
	// API server has an audit log.
	Audit audit.Backend
	// Log gets the errors of the port. Failed TLS handshakes have the level debug.
	Log *slog.Logger
}

// Server is the aggregated API server.
type Server struct {
	generic *server.GenericAPIServer
	proxy   *frontProxy
	api     *manager.Server
}

// New returns a server that listens on its port. New fails if the API server does not publish the
// settings for forwarded requests.
func New(ctx context.Context, c Config) (*Server, error) {
	if err := checkSVIDKinds(c.SVIDKinds); err != nil {
		return nil, err
	}
	proxy, err := newFrontProxy(ctx, c.Kubernetes)
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme(c.SVIDKinds)
	if err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	config := c.generic(proxy, scheme, codecs)
	generic, err := config.Complete(nil).New("lanyard-token-server", server.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make the API server: %w", err)
	}
	group := server.NewDefaultAPIGroupInfo(tokenv1.Group, scheme, runtime.NewParameterCodec(scheme), codecs)
	group.VersionedResourcesStorageMap[tokenv1.Version] = c.storage()
	if err := generic.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("make the API server: %w", err)
	}
	api, err := port.Open(ctx, port.Config{
		Name: "api", Flag: "--listen-address", Address: c.Address, Handler: generic.Handler, Log: c.Log,
		TLS: proxy.tls(c.Certificate), Verified: true,
		MaxHeaderBytes: 64 << 10, // requests of users with many groups have long headers
		// The library k8s.io/apiserver ends each request after RequestTimeout, at the latest. The
		// library then has 10 s to send the answer.
		WriteTimeout: config.RequestTimeout + 10*time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &Server{generic: generic, proxy: proxy, api: api}, nil
}

// storage returns the storage of each resource that is served.
func (c *Config) storage() map[string]rest.Storage {
	storage := map[string]rest.Storage{}
	if c.Issuer != nil {
		identity := kinds.WorkloadIdentity()
		storage[identity.Plural] = parent{kind: identity.Kind}
		storage[identity.Plural+"/token"] = &subresource[*tokenv1.TokenRequest]{
			kind: tokenv1.TokenRequestKind, empty: func() *tokenv1.TokenRequest { return &tokenv1.TokenRequest{} },
			preconditions: c.Preconditions, metrics: c.Metrics, create: (&tokens{c}).create,
		}
	}
	if c.SVIDs == nil {
		return storage
	}
	for _, kind := range c.SVIDKinds {
		storage[kind.Plural] = parent{kind: kind.Kind}
		storage[kind.Plural+"/svid"] = &subresource[*tokenv1.SVIDRequest]{
			kind: tokenv1.SVIDRequestKind, empty: func() *tokenv1.SVIDRequest { return &tokenv1.SVIDRequest{} },
			preconditions: c.Preconditions, metrics: c.Metrics,
			create: (&svids{SVIDs: c.SVIDs, kind: kind, metrics: c.Metrics}).create,
		}
	}
	return storage
}

// audited returns the resources whose requests have an audit event: all that make tokens or SVIDs.
func (c *Config) audited() []string {
	resources := []string{kinds.WorkloadIdentity().Plural + "/token"}
	for _, kind := range c.SVIDKinds {
		resources = append(resources, kind.Plural+"/svid")
	}
	return resources
}

// checkSVIDKinds refuses kinds that package svid does not list. Objects of other kinds cannot have
// SVIDs.
func checkSVIDKinds(table kinds.Table) error {
	for _, kind := range table {
		if plural, ok := svid.Resource(auth.Kind(kind.Kind)); !ok || plural != kind.Plural {
			return fmt.Errorf("objects of kind %s (%s) cannot have SVIDs: package auth/svid does not list it", kind.Kind, kind.Plural)
		}
	}
	return nil
}

// Run serves requests until ctx ends and the requests under way are answered.
func (s *Server) Run(ctx context.Context) error {
	if err := s.proxy.start(ctx); err != nil {
		return nil // ctx has ended
	}
	defer s.generic.Destroy()
	if events := s.generic.AuditBackend; events != nil {
		answered := make(chan struct{})
		if err := events.Run(answered); err != nil {
			return fmt.Errorf("start the audit log: %w", err)
		}
		defer events.Shutdown()
		defer close(answered)
	}
	// This call only prepares the library's handlers. The call opens no port, because the
	// library's configuration has no SecureServing. Instead, s.api serves the requests, because
	// the library's own port would accept any number of connections.
	if _, _, err := s.generic.PrepareRun().NonBlockingRunWithContext(ctx, 0); err != nil {
		return err
	}
	return s.api.Start(ctx)
}

// newScheme returns a scheme with the kinds of the group. Requests are not converted: the API has
// one version, whose types are also the internal ones.
func newScheme(svids kinds.Table) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := tokenv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypes(schema.GroupVersion{Group: tokenv1.Group, Version: runtime.APIVersionInternal},
		&tokenv1.SVIDRequest{}, &tokenv1.TokenRequest{})
	for _, kind := range append(kinds.Table{kinds.WorkloadIdentity()}, svids...) {
		scheme.AddKnownTypeWithName(tokenv1.GroupVersion().WithKind(kind.Kind), &metav1.PartialObjectMetadata{})
	}
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned, &metav1.Status{}, &metav1.APIVersions{},
		&metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return scheme, nil
}

// generic configures the API server's library.
func (c *Config) generic(proxy *frontProxy, scheme *runtime.Scheme, codecs serializer.CodecFactory) *server.Config {
	config := server.NewConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.EnableProfiling = false
	config.EnableMetrics = false // a separate port serves the metrics
	config.EnableIndex = false
	config.BuildHandlerChainFunc = func(handler http.Handler, config *server.Config) http.Handler {
		return handlerChain(handler, config, c.Metrics)
	}

	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = server.DefaultOpenAPIConfig(openapi.Definitions, namer)
	config.OpenAPIConfig.Info.Title = "Lanyard"
	config.OpenAPIV3Config = server.DefaultOpenAPIV3Config(openapi.Definitions, namer)
	config.OpenAPIV3Config.Info.Title = "Lanyard"

	// The library requires an address. Only the answer to GET /apis contains the address. Clients
	// never see this answer, because the API server itself answers their GET /apis.
	config.ExternalAddress = "127.0.0.1:443"
	// The library requires a client with which a server calls itself. This server never does, so
	// the client has no token. With a token, it would be a member of system:masters.
	config.LoopbackClientConfig = &restclient.Config{}
	config.Authentication.RequestHeaderConfig = proxy.config()
	config.Authentication.Authenticator = proxy.authenticator()
	config.Authorization.Authorizer = c.Authorizer
	if c.Audit != nil {
		config.AuditBackend = c.Audit
		config.AuditPolicyRuleEvaluator = policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
			Rules: []auditinternal.PolicyRule{{
				Level:      auditinternal.LevelMetadata, // RequestResponse would log tokens
				OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
				Resources:  []auditinternal.GroupResources{{Group: tokenv1.Group, Resources: c.audited()}},
			}},
		})
	}
	return config
}
