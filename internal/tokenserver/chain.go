package tokenserver

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/server"
	serverfilters "k8s.io/apiserver/pkg/server/filters"
)

// handlerChain returns a handler that passes each request through filters to the given handler. The
// filters have the order of [server.DefaultBuildHandlerChain]. The code adds the last filter first.
//
// The chain omits filters that the token server does not need. Without these filters, a request for
// a token takes a third less time. The omitted filters are:
//
//   - WithTracing, WithLatencyTrackers and WithHTTPLogging: nobody reads their data.
//   - WithImpersonation: the API server has already checked the impersonation. In the request to
//     the token server, the impersonated user is the caller.
//   - WithTimeoutForNonLongRunningRequests, which answers at the deadline even if the handler
//     continues. The token server's handlers respect the deadline of the context. For create
//     requests, the library itself answers at the deadline.
//   - WithMuxAndDiscoveryComplete, which refuses requests until all paths are registered: the token
//     server registers all paths before it accepts requests.
//   - WithWaitGroup, which lets a shutdown wait for unfinished requests: package port waits for
//     these requests.
//   - Filters for browsers, watches and shutdowns: they are off by default.
//
// The library's filter WithMaxInFlightLimit limits the concurrent requests of all callers together.
// So one caller could lock out the other callers. In this chain, WithMaxInFlightLimit applies only
// to cheap requests, which create nothing. For requests that create tokens or SVIDs, [shares]
// divides the places among namespaces.
func handlerChain(handler http.Handler, c *server.Config, metrics *Metrics) http.Handler {
	handler = filters.WithAuthorization(handler, c.Authorization.Authorizer, c.Serializer)
	limited := serverfilters.WithMaxInFlightLimit(handler, c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight, c.LongRunningFunc)
	handler = newShares(c.Serializer, metrics).wrap(handler, limited)
	handler = filters.WithAudit(handler, c.AuditBackend, c.AuditPolicyRuleEvaluator, c.LongRunningFunc)
	unknown := filters.WithFailedAuthenticationAudit(filters.Unauthorized(c.Serializer), c.AuditBackend, c.AuditPolicyRuleEvaluator)
	handler = filters.WithAuthentication(handler, c.Authentication.Authenticator,
		unknown, c.Authentication.APIAudiences, c.Authentication.RequestHeaderConfig)
	handler = filters.WithWarningRecorder(handler)
	handler = filters.WithRequestDeadline(handler, c.AuditBackend,
		c.AuditPolicyRuleEvaluator, c.LongRunningFunc, c.Serializer, c.RequestTimeout)
	handler = filters.WithCacheControl(handler)
	handler = filters.WithRequestInfo(handler, c.RequestInfoResolver)
	handler = filters.WithRequestReceivedTimestamp(handler)
	handler = serverfilters.WithPanicRecovery(handler, c.RequestInfoResolver)
	return filters.WithAuditInit(handler)
}
