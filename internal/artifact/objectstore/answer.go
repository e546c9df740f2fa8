package objectstore

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// maxErrorBody limits how many bytes of an error answer's body are read.
const maxErrorBody = 64 << 10

// meaning describes a service's own error code, which is more precise than the HTTP status.
type meaning struct {
	code       origin.Code
	fix        string // what the user should do; empty for the usual advice of the origin.Code
	permission string // the permission that the identity lacks
}

// meaningOf returns the meaning of a service's error code. It returns false for a code that is not
// listed here, because the HTTP status then says enough. Error texts contain the listed codes and
// the bucket's region, but no other text of an error answer. Sources: "Error responses" of the
// Amazon S3 API reference; "Blob service error codes" and "Common REST API error codes" of Azure
// Storage; "HTTP status and error codes for JSON" of Google Cloud Storage.
func meaningOf(serviceCode string) (meaning, bool) {
	switch serviceCode {
	case "NoSuchBucket", "ContainerNotFound", "ResourceNotFound", "notFound":
		return meaning{code: origin.CodeNotFound}, true
	case "ContainerBeingDeleted", "AccountBeingCreated":
		return meaning{code: origin.CodeServer}, true
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
		"AuthenticationFailed", "NoAuthenticationInformation", "InvalidAuthenticationInfo", "authError", "required":
		return meaning{code: origin.CodeUnauthorized}, true
	case "RequestTimeTooSkewed":
		return meaning{code: origin.CodeUnauthorized, fix: "set the clocks of the controller and of the endpoint"}, true
	case "AccessDenied", "AllAccessDisabled", "AccountProblem":
		return meaning{code: origin.CodeDenied, permission: "s3:ListBucket, s3:GetObject"}, true
	case "InsufficientAccountPermissions", "AuthorizationFailure", "AuthorizationPermissionMismatch", "PublicAccessNotPermitted":
		return meaning{code: origin.CodeDenied, permission: "Storage Blob Data Reader"}, true
	case "forbidden":
		return meaning{code: origin.CodeDenied, permission: "roles/storage.objectViewer"}, true
	case "AuthorizationSourceIPMismatch":
		return meaning{code: origin.CodeDenied, fix: "admit the controller's address in the account's firewall"}, true
	case "SlowDown", "RequestLimitExceeded", "ServerBusy", "rateLimitExceeded", "userRateLimitExceeded":
		return meaning{code: origin.CodeThrottled}, true
	case "NoSuchKey", "NoSuchVersion", "PreconditionFailed", "BlobNotFound", "ConditionNotMet", "conditionNotMet":
		return meaning{code: origin.CodeChanged}, true
	case "InvalidObjectState", "BlobArchived":
		return meaning{code: origin.CodeDenied, fix: "restore the object from the archive's tier, or exclude it with spec.ignore"}, true
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException":
		return meaning{code: origin.CodeProtocol, fix: "set spec.region to the bucket's region"}, true
	default:
		return meaning{}, false
	}
}

// answerError converts an answer other than success to an Error. It reads the body and does not
// close it.
func answerError(resp *http.Response, caller origin.Caller) *origin.Error {
	e := Server(resp.Request.URL.Host, caller).Answered(resp.StatusCode)
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		e.Fix = "write the endpoint that serves the bucket; redirects are not followed"
	}
	serviceCode := errorCode(resp)
	if m, ok := meaningOf(serviceCode); ok {
		e.ServerCode, e.Code, e.Fix, e.Permission = serviceCode, m.code, m.fix, m.permission
		e.Err = fmt.Errorf("%w: %s", e.Err, serviceCode)
	}
	// If a request names a wrong region, S3 answers with the bucket's region. The error then says
	// which region to set.
	if region := resp.Header.Get("x-amz-bucket-region"); e.Code == origin.CodeProtocol && isRegion(region) {
		e.Field, e.Fix = "spec.region", "set it to "+region
		e.Err = fmt.Errorf("the bucket is in region %s: %w", region, e.Err)
	}
	if e.Code == origin.CodeNotFound {
		e.Field = "spec.bucketName"
	}
	if e.Code == origin.CodeThrottled || e.Code == origin.CodeServer {
		e.RetryAfter = attempt.RetryAfter(resp.Header)
	}
	return e
}

// errorCode returns the service's error code from a header (Azure), from XML (S3) or from JSON
// (Google).
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

// isRegion reports whether a header's value looks like a region. Other text must not get into
// errors.
func isRegion(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
