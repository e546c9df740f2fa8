package aws

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/aws/sigv4"
	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// maxContent is the maximum length of an upload in bytes; S3's own limit is 5 GiB. Uploads are read
// as a whole, so that only verified content is stored.
const maxContent = 256 << 20

// s3Call is one request to S3, with the results of its checks.
type s3Call struct {
	*service.Request
	s3Request

	ep      endpoint
	owner   *bucket // nil: there is no such bucket
	who     principal
	content []byte
	trailer http.Header
}

// readS3 implements [service.Service] for S3.
func (c *Cloud) readS3(r *service.Request, ep endpoint) (service.Protocol, service.Handler) {
	r.Reply.Set("X-Amz-Request-Id", strings.ToUpper(strings.ReplaceAll(wire.UUID(), "-", "")[:16]))
	r.Reply.Set("X-Amz-Id-2", base64.StdEncoding.EncodeToString(wire.Random(56)))
	req, unread := readS3Request(r.Request, ep.bucket)
	r.Call.Operation = req.name
	s := &s3Call{Request: r, s3Request: req, ep: ep, owner: c.findBucket(req.bucket, ep.partition)}
	if req.bucket != "" {
		r.Call.Resource = s.arn()
	}
	return restXML(), func(*service.Request) (service.Answer, *service.Refusal) { return c.serveS3(s, unread) }
}

// serveS3 answers a request to S3. The order of the checks is: signature, operation, bucket, the
// bucket's region, permission, content.
func (c *Cloud) serveS3(s *s3Call, unread *service.Refusal) (service.Answer, *service.Refusal) {
	if s.owner != nil {
		s.Reply.Set("X-Amz-Bucket-Region", s.owner.region)
	}
	for _, check := range []func() *service.Refusal{
		func() *service.Refusal { return c.authenticateS3(s) },
		func() *service.Refusal { return unread },
		s.atHome,
		func() *service.Refusal { return c.authorizeS3(s, s.action) },
		func() *service.Refusal { return checkDigests(s.content, s.Header, s.trailer) },
	} {
		if refusal := check(); refusal != nil {
			return nil, refusal
		}
	}
	switch s.name {
	case opListBuckets:
		return c.listBuckets(s)
	case opHeadBucket:
		return service.Empty(http.StatusOK), nil
	case opGetBucketLocation:
		return writeRestXML(http.StatusOK, location(s.owner.region)), nil
	default:
		return c.forwardS3(s)
	}
}

// arn returns the ARN of the object or, for requests about the bucket, of the bucket.
func (s *s3Call) arn() string {
	arn := "arn:" + s.ep.partition + ":s3:::" + s.bucket
	if s.key != "" {
		arn += "/" + s.key
	}
	return arn
}

func (c *Cloud) findBucket(name, partition string) *bucket {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if b := c.buckets[name]; b != nil && b.partition.id == partition {
		return b
	}
	return nil
}

// followsBucket reports whether the host serves its bucket regardless of the bucket's region. Only
// virtual hosts at the legacy global endpoint do.
func (s *s3Call) followsBucket() bool { return s.ep.global && s.ep.bucket != "" }

// signingRegion is the region that the signature must be for.
func (s *s3Call) signingRegion() string {
	if s.followsBucket() && s.owner != nil {
		return s.owner.region
	}
	return s.ep.region
}

// atHome refuses a request if the bucket does not exist or is not in the endpoint's region. At the
// global endpoint, virtual hosts and GetBucketLocation work for buckets of all regions. Source:
// Amazon S3 User Guide, "Making requests to S3: request redirection and the REST API".
func (s *s3Call) atHome() *service.Refusal {
	switch {
	case s.on == onAccount:
		return nil
	case s.owner == nil:
		return service.Refuse(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist").
			With(elements("BucketName", s.bucket))
	case s.owner.region == s.ep.region, s.followsBucket(), s.ep.global && s.name == opGetBucketLocation:
		return nil
	}
	return service.Refuse(http.StatusMovedPermanently, "PermanentRedirect",
		"The bucket you are attempting to access must be addressed using the specified endpoint. Please send all future requests to this endpoint.").
		Because("the bucket is in " + s.owner.region + ", the endpoint of " + s.ep.region).
		With(elements("Endpoint", "s3."+s.owner.region+"."+s.owner.partition.suffix, "Bucket", s.bucket))
}

// authenticateS3 authenticates the caller and reads the content. A request without a signature is
// refused later, by authorizeS3.
func (c *Cloud) authenticateS3(s *s3Call) *service.Refusal {
	r := s.Request.Request
	body, err := s.ReadBody(maxContent)
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case tooLarge:
		return service.Refuse(http.StatusBadRequest, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
	case err != nil:
		return service.Refuse(http.StatusBadRequest, "IncompleteBody", "The request body terminated unexpectedly")
	}
	sig, err := sigv4.Parse(r)
	if errors.Is(err, sigv4.ErrMissing) {
		return nil
	}
	// malformed returns S3's refusal of a malformed signature. The refusal depends on whether the
	// signature is in the header or in the query.
	malformed := func(message string) *service.Refusal {
		if r.Header.Get("Authorization") == "" {
			return service.Refuse(http.StatusBadRequest, "AuthorizationQueryParametersError",
				"Error parsing the X-Amz-Credential parameter; "+message)
		}
		return service.Refuse(http.StatusBadRequest, "AuthorizationHeaderMalformed", "The authorization header is malformed; "+message)
	}
	if err != nil {
		return malformed(err.Error())
	}
	who, secret, err := c.lookup(sig, s.ep, s.Now)
	switch {
	case errors.Is(err, errSessionToken):
		return service.Refuse(http.StatusBadRequest, "InvalidToken",
			"The provided token is malformed or otherwise invalid.").Because(err.Error())
	case err != nil:
		return service.Refuse(http.StatusForbidden, "InvalidAccessKeyId",
			"The AWS Access Key Id you provided does not exist in our records.").
			Because(err.Error()).With(elements("AWSAccessKeyId", sig.AccessKeyID))
	case sig.Service != ServiceS3:
		return malformed(`incorrect service "` + sig.Service + `". This endpoint belongs to "s3".`)
	case sig.Region != s.signingRegion():
		return malformed("the region '" + sig.Region + "' is wrong; expecting '" + s.signingRegion() + "'").
			With(elements("Region", s.signingRegion()))
	}
	if s.content, s.trailer, err = sig.VerifyS3(r, body, secret, s.Now); err != nil {
		return s3SignatureError(err, sig)
	}
	if who.session != nil && !s.Now.Before(who.session.expires) {
		return service.Refuse(http.StatusBadRequest, "ExpiredToken", "The provided token has expired.")
	}
	s.who, s.Call.Principal = who, who.arn()
	return nil
}

func s3SignatureError(err error, sig sigv4.Signature) *service.Refusal {
	if content, ok := errors.AsType[*sigv4.ContentError](err); ok {
		status := http.StatusBadRequest
		if content.Code == "MissingContentLength" {
			status = http.StatusLengthRequired
		}
		return service.Refuse(status, content.Code, content.Message)
	}
	switch {
	case errors.Is(err, sigv4.ErrTime) && sig.Presigned:
		return service.Refuse(http.StatusForbidden, "AccessDenied", "Request has expired").Because(err.Error())
	case errors.Is(err, sigv4.ErrTime):
		return service.Refuse(http.StatusForbidden, "RequestTimeTooSkewed",
			"The difference between the request time and the current time is too large.").Because(err.Error())
	default:
		return service.Refuse(http.StatusForbidden, "SignatureDoesNotMatch",
			"The request signature we calculated does not match the signature you provided. Check your key and signing method.").
			Because(err.Error())
	}
}

// authorizeS3 checks that the policies allow an action of S3.
func (c *Cloud) authorizeS3(s *s3Call, action string) *service.Refusal {
	denied := service.Refuse(http.StatusForbidden, "AccessDenied", "Access Denied")
	if s.who.account == "" {
		return denied.Because("the request is not signed, and buckets are not public here")
	}
	if s.on == onAccount {
		return c.authorizeAccount(s, "s3:"+action)
	}
	if owner := s.Header.Get("X-Amz-Expected-Bucket-Owner"); owner != "" && owner != s.owner.account {
		return denied.Because("the bucket is another account's than the request expects")
	}
	ctx := requestContext(s.ep, s.Now)
	ctx.Set("aws:RequestedRegion", s.owner.region)
	resource := s.arn()
	if action == actionListBucket {
		resource = s.owner.arn()
		if s.name == opListObjects || s.name == opListObjectsV2 {
			setListing(ctx, s.URL.Query())
		}
	}
	action = "s3:" + action
	v := c.authorize(s.who, ask{action: action, resource: resource, owner: s.owner.account, policy: s.owner.policy, context: ctx})
	switch {
	case v.allowed:
		return nil
	case s.owner.account != s.who.account: // only the bucket's own account is told why
		return denied.Because(v.reason)
	}
	return service.Refuse(http.StatusForbidden, "AccessDenied", notAuthorized(s.who, action, strconv.Quote(resource), v)).Because(v.reason)
}

// setListing sets the condition keys s3:prefix and s3:delimiter to the parameters of a listing. If
// a parameter is absent, its key stays absent.
func setListing(ctx policy.Context, query url.Values) {
	for _, name := range []string{"prefix", "delimiter"} {
		if query.Has(name) {
			ctx.Set("s3:"+name, query.Get(name))
		}
	}
}

type location string

// MarshalXML writes the answer of GetBucketLocation. For us-east-1, S3 writes an empty element.
func (l location) MarshalXML(e *xml.Encoder, _ xml.StartElement) error {
	if l == "us-east-1" {
		l = ""
	}
	return e.EncodeElement(string(l), xml.StartElement{Name: xml.Name{Space: s3Namespace, Local: "LocationConstraint"}}) // unwrapped error, as callers of an xml.Marshaler expect
}

// forwardS3 sends an authorized request to the data plane, with the bucket in the path, and without
// credentials and chunk framing.
func (c *Cloud) forwardS3(s *s3Call) (service.Answer, *service.Refusal) {
	// Only a caller who may list the bucket learns whether an object exists. Source: Amazon S3 API
	// Reference, GetObject, "Permissions".
	var hidden *service.Refusal
	if s.name == opGetObject || s.name == opHeadObject {
		hidden = c.authorizeS3(s, actionListBucket)
	}
	return s.Forward(c.objects.Get(struct{}{}), s.forwarded(), hidden)
}

// forwarded returns the request for the data plane.
func (s *s3Call) forwarded() *http.Request {
	r := s.Request.Request
	out := plane.Request(r)
	query := r.URL.Query()
	for _, name := range append(signatureParams(), "x-id") {
		query.Del(name)
	}
	out.URL = &url.URL{Scheme: "https", Host: r.Host, Path: "/" + s.bucket, RawQuery: query.Encode()}
	if s.key != "" {
		out.URL.Path += "/" + s.key
	}
	out.RequestURI = out.URL.RequestURI()
	maps.DeleteFunc(out.Header, func(name string, _ []string) bool { return !forS3Plane(strings.ToLower(name)) })
	if encoding := plainEncoding(r.Header.Values("Content-Encoding")); encoding != "" {
		out.Header.Set("Content-Encoding", encoding)
	}
	out.Body, out.ContentLength, out.TransferEncoding = io.NopCloser(bytes.NewReader(s.content)), int64(len(s.content)), nil
	out.Header.Set("Content-Length", strconv.Itoa(len(s.content)))
	return out
}

// plainEncoding returns Content-Encoding without "aws-chunked".
func plainEncoding(values []string) string {
	var kept []string
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.TrimSpace(name); name != "aws-chunked" && name != "" {
				kept = append(kept, name)
			}
		}
	}
	return strings.Join(kept, ", ")
}
