package tokenserver

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/server"
	serverfilters "k8s.io/apiserver/pkg/server/filters"
)

// handlerChain returns the handler, wrapped in filters that every request passes. Requests pass the
// filters in the order of [server.DefaultBuildHandlerChain]. The code adds the last filter first.
// The chain leaves out the filters that the token server does not need. So a request for a token
// takes a third less time than with all filters. The chain leaves out these filters:
//
//   - Tracing, latencies of filters and the log of requests: nobody reads this data.
//   - Impersonation: the API server has checked the impersonation, and names the impersonated user
//     as the caller.
//   - A goroutine that sends the answer if a handler ignores its deadline. Every handler here
//     respects the deadline of the context. For create requests, the library itself answers at
//     the deadline.
//   - The refusal of requests until all paths are known: the server serves requests only when all
//     paths are known.
//   - The count of running requests: at shutdown, package port waits for these requests.
//   - Filters for browsers, watches and shutdowns: they are off by default.
//
// The library limits the number of concurrent requests of all callers together. So one caller
// could lock out the other callers. Here, this limit applies only to cheap requests, which create
// nothing. For requests that create tokens or SVIDs, [shares] divides the places among namespaces.
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
