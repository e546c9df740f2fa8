package tokenserver

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/server"
	serverfilters "k8s.io/apiserver/pkg/server/filters"
)

// handlerChain wraps the handler in the filters that every request passes. The code adds the last
// filter first. The filters have the order of [server.DefaultBuildHandlerChain]. The chain leaves
// out the filters that the token server does not need. So a token takes a third less time than with
// all filters. These filters are left out:
//
//   - Tracing, latencies of filters and the log of requests: nothing reads them here.
//   - Impersonation: the API server has checked it, and forwards the impersonated user as caller.
//   - A goroutine that sends the answer if a handler ignores its deadline. Every handler here
//     respects the deadline of the context. For create requests, the library itself answers at
//     the deadline.
//   - The refusal of requests until all paths are known: the server serves nothing until then.
//   - The count of requests under way: package port waits for these requests at the end.
//   - Filters for browsers, watches and shutdowns: they are off by default.
//
// The library's limits of requests count the requests of all callers together, so that one caller
// could lock out the others. Here, these limits apply only to requests with a small constant cost.
// All others are divided by [shares].
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
