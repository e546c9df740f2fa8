package bucket

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/artifact/retry"
)

// maxErrorBody bounds what is read of a refusal, in bytes.
const maxErrorBody = 64 << 10

// meaning is what a service's own error code says more precisely than the HTTP status.
type meaning struct {
	code Code
	fix  string
}

const (
	fixCredential = "check that the credential is of this endpoint and not expired"
	fixGrant      = "grant this identity to list the bucket and to read its objects"
	fixBucket     = "create the bucket, or correct the name"
)

// meaningOf knows the error codes that decide something. No other text of a service is ever shown. Sources: "Error responses" of
// the Amazon S3 API reference; "Blob service error codes" and "Common REST API error codes" of Azure Storage; "HTTP status
// and error codes for JSON" of Google Cloud Storage.
func meaningOf(serviceCode string) (meaning, bool) {
	switch serviceCode {
	case "NoSuchBucket", "ContainerNotFound", "ResourceNotFound", "notFound":
		return meaning{CodeNotFound, fixBucket}, true
	case "ContainerBeingDeleted", "AccountBeingCreated":
		return meaning{CodeServer, ""}, true
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
		"AuthenticationFailed", "NoAuthenticationInformation", "InvalidAuthenticationInfo", "authError", "required":
		return meaning{CodeUnauthorized, fixCredential}, true
	case "RequestTimeTooSkewed":
		return meaning{CodeUnauthorized, "set the clocks of the controller and of the endpoint"}, true
	case "AccessDenied", "AllAccessDisabled", "AccountProblem":
		return meaning{CodeForbidden, fixGrant + " (s3:ListBucket, s3:GetObject)"}, true
	case "InsufficientAccountPermissions", "AuthorizationFailure", "AuthorizationPermissionMismatch", "PublicAccessNotPermitted":
		return meaning{CodeForbidden, fixGrant + " (Storage Blob Data Reader)"}, true
	case "forbidden":
		return meaning{CodeForbidden, fixGrant + " (roles/storage.objectViewer)"}, true
	case "AuthorizationSourceIPMismatch":
		return meaning{CodeForbidden, "admit the controller's address in the account's firewall"}, true
	case "SlowDown", "RequestLimitExceeded", "ServerBusy", "rateLimitExceeded", "userRateLimitExceeded":
		return meaning{CodeThrottled, ""}, true
	case "NoSuchKey", "NoSuchVersion", "PreconditionFailed", "BlobNotFound", "ConditionNotMet", "conditionNotMet":
		return meaning{CodeChanged, ""}, true
	case "InvalidObjectState", "BlobArchived":
		return meaning{CodeForbidden, "restore the object from the archive's tier, or exclude it with spec.ignore"}, true
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException":
		return meaning{CodeProtocol, "set spec.region to the bucket's region"}, true
	default:
		return meaning{}, false
	}
}

// answerError turns an answer that is no success into an Error. It reads the body and does not close it.
func answerError(resp *http.Response) *Error {
	e := &Error{Host: resp.Request.URL.Host, Status: resp.StatusCode}
	e.Code, e.Fix = statusMeaning(resp.StatusCode)
	detail := strings.TrimSpace(fmt.Sprintf("HTTP %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	serviceCode := errorCode(resp)
	if m, ok := meaningOf(serviceCode); ok {
		e.ServiceCode, e.Code, e.Fix = serviceCode, m.code, m.fix
		detail += ": " + serviceCode
	}
	// S3 tells where a bucket is to whoever asks in another region.
	if region := resp.Header.Get("x-amz-bucket-region"); e.Code == CodeProtocol && isRegion(region) {
		e.Field, e.Fix = "spec.region", "set it to "+region
		detail = "the bucket is in region " + region + ": " + detail
	}
	if e.Code == CodeNotFound {
		e.Field = "spec.bucketName"
	}
	if e.Code == CodeThrottled || e.Code == CodeServer {
		e.RetryAfter = retry.After(resp.Header.Get("Retry-After"))
	}
	e.Err = errors.New(detail)
	return e
}

func statusMeaning(status int) (Code, string) {
	switch {
	case status == http.StatusUnauthorized:
		return CodeUnauthorized, fixCredential
	case status == http.StatusForbidden:
		return CodeForbidden, fixGrant
	case status == http.StatusNotFound:
		return CodeNotFound, fixBucket
	case status == http.StatusPreconditionFailed:
		return CodeChanged, ""
	case status == http.StatusTooManyRequests:
		return CodeThrottled, ""
	case status >= 500 || status == http.StatusRequestTimeout:
		return CodeServer, ""
	case status >= 300 && status < 400:
		return CodeProtocol, "write the endpoint that serves the bucket; redirects are not followed"
	default:
		return CodeProtocol, "check that the endpoint serves buckets of this provider"
	}
}

// errorCode is the service's word for what failed: in a header (Azure), in XML (S3) or in JSON (Google).
func errorCode(resp *http.Response) string {
	if code := resp.Header.Get("x-ms-error-code"); code != "" {
		return code
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return ""
	}
	var asXML struct {
		Code string `xml:"Code"`
	}
	if xml.Unmarshal(body, &asXML) == nil {
		return strings.TrimSpace(asXML.Code)
	}
	var asJSON struct {
		Error struct {
			Errors []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &asJSON) == nil && len(asJSON.Error.Errors) > 0 {
		return asJSON.Error.Errors[0].Reason
	}
	return ""
}

// isRegion keeps a header's text out of errors unless it looks like a region.
func isRegion(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
