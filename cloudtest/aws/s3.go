package aws

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/aws/sigv4"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/plane"
)

// maxContent bounds an upload in bytes. Contents are read whole, so that what is stored is what was verified; S3's own bound is 5 GiB.
const maxContent = 256 << 20

// s3Call is one request to S3 on its way through the checks.
type s3Call struct {
	s3Request

	ep      endpoint
	now     time.Time
	owner   *bucket // nil: there is no such bucket
	who     principal
	content []byte
	trailer http.Header
}

// serveS3 answers a request to S3. The order is: signature, what is asked for, bucket, its region, permission, content.
func (c *Cloud) serveS3(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call) {
	markS3(w)
	req, unread := readS3Request(r, ep.bucket)
	call.Operation = req.name
	s := s3Call{s3Request: req, ep: ep, owner: c.findBucket(req.bucket, ep.partition)}
	if req.bucket != "" {
		call.Resource = s.arn()
	}
	var ok bool
	if s.now, ok = c.begin(r.Context(), w, restXML{}, call); !ok {
		return
	}
	if s.owner != nil {
		w.Header().Set("X-Amz-Bucket-Region", s.owner.region)
	}
	refusal := c.authenticateS3(w, r, &s)
	if refusal == nil && s.who.account != "" {
		call.Principal = s.who.arn()
	}
	for _, check := range []func() *apiError{
		func() *apiError { return unread },
		s.atHome,
		func() *apiError { return c.authorizeS3(&s, s.action, r) },
		func() *apiError { return checkDigests(s.content, r.Header, s.trailer) },
	} {
		if refusal == nil {
			refusal = check()
		}
	}
	if refusal != nil {
		restXML{}.refuse(w, call, refusal)
		return
	}
	switch s.name {
	case opListBuckets:
		c.listBuckets(w, r, &s, call)
	case opHeadBucket:
		w.WriteHeader(http.StatusOK)
	case opGetBucketLocation:
		writeRestXML(w, http.StatusOK, location(s.owner.region))
	default:
		c.forwardS3(w, r, &s, call)
	}
}

// arn is that of the object or, for requests about the bucket, the bucket.
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

// followsBucket says whether the host leads to the bucket wherever it is: its virtual host at the legacy global endpoint does.
func (s *s3Call) followsBucket() bool { return s.ep.global && s.ep.bucket != "" }

// signingRegion is the region that the signature must be for.
func (s *s3Call) signingRegion() string {
	if s.followsBucket() && s.owner != nil {
		return s.owner.region
	}
	return s.ep.region
}

// atHome refuses what was sent to another region than the bucket's. Where a bucket is may be asked at the global endpoint. Source: Amazon S3 User Guide,
// "Making requests to S3: request redirection and the REST API".
func (s *s3Call) atHome() *apiError {
	switch {
	case s.on == onAccount:
		return nil
	case s.owner == nil:
		return refused(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist").with("BucketName", s.bucket)
	case s.owner.region == s.ep.region, s.followsBucket(), s.ep.global && s.name == opGetBucketLocation:
		return nil
	}
	return refused(http.StatusMovedPermanently, "PermanentRedirect",
		"The bucket you are attempting to access must be addressed using the specified endpoint. Please send all future requests to this endpoint.").
		because("the bucket is in "+s.owner.region+", the endpoint of "+s.ep.region).
		with("Endpoint", "s3."+s.owner.region+"."+s.owner.partition.suffix).with("Bucket", s.bucket)
}

// authenticateS3 proves the caller and takes the content off the request. A request without a signature is nobody's, which is no refusal yet.
func (c *Cloud) authenticateS3(w http.ResponseWriter, r *http.Request, s *s3Call) *apiError {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxContent))
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case tooLarge:
		return refused(http.StatusBadRequest, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
	case err != nil:
		return refused(http.StatusBadRequest, "IncompleteBody", "The request body terminated unexpectedly")
	}
	sig, err := sigv4.Parse(r)
	if errors.Is(err, sigv4.ErrMissing) {
		return nil
	}
	// malformed is refused in one of two ways, by where the signature stands.
	malformed := func(message string) *apiError {
		if r.Header.Get("Authorization") == "" {
			return refused(http.StatusBadRequest, "AuthorizationQueryParametersError", "Error parsing the X-Amz-Credential parameter; "+message)
		}
		return refused(http.StatusBadRequest, "AuthorizationHeaderMalformed", "The authorization header is malformed; "+message)
	}
	if err != nil {
		return malformed(err.Error())
	}
	who, secret, err := c.lookup(sig, s.ep, s.now)
	switch {
	case errors.Is(err, errSessionToken):
		return refused(http.StatusBadRequest, "InvalidToken", "The provided token is malformed or otherwise invalid.").because(err.Error())
	case err != nil:
		return refused(http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.").
			because(err.Error()).with("AWSAccessKeyId", sig.AccessKeyID)
	case sig.Service != ServiceS3:
		return malformed(`incorrect service "` + sig.Service + `". This endpoint belongs to "s3".`)
	case sig.Region != s.signingRegion():
		return malformed("the region '"+sig.Region+"' is wrong; expecting '"+s.signingRegion()+"'").with("Region", s.signingRegion())
	}
	if s.content, s.trailer, err = sig.VerifyS3(r, body, secret, s.now); err != nil {
		return s3SignatureError(err, sig)
	}
	if who.session != nil && !s.now.Before(who.session.expires) {
		return refused(http.StatusBadRequest, "ExpiredToken", "The provided token has expired.")
	}
	s.who = who
	return nil
}

func s3SignatureError(err error, sig sigv4.Signature) *apiError {
	if content, ok := errors.AsType[*sigv4.ContentError](err); ok {
		status := http.StatusBadRequest
		if content.Code == "MissingContentLength" {
			status = http.StatusLengthRequired
		}
		return refused(status, content.Code, content.Message)
	}
	switch {
	case errors.Is(err, sigv4.ErrTime) && sig.Presigned:
		return refused(http.StatusForbidden, "AccessDenied", "Request has expired").because(err.Error())
	case errors.Is(err, sigv4.ErrTime):
		return refused(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.").because(err.Error())
	default:
		return refused(http.StatusForbidden, "SignatureDoesNotMatch",
			"The request signature we calculated does not match the signature you provided. Check your key and signing method.").because(err.Error())
	}
}

// authorizeS3 asks for an action of S3.
func (c *Cloud) authorizeS3(s *s3Call, action string, r *http.Request) *apiError {
	denied := refused(http.StatusForbidden, "AccessDenied", "Access Denied")
	if s.who.account == "" {
		return denied.because("the request is not signed, and buckets are not public here")
	}
	if s.on == onAccount {
		return c.authorizeAccount(s, "s3:"+action)
	}
	if owner := r.Header.Get("X-Amz-Expected-Bucket-Owner"); owner != "" && owner != s.owner.account {
		return denied.because("the bucket is another account's than the request expects")
	}
	ctx := requestContext(s.ep, s.now)
	ctx.Set("aws:RequestedRegion", s.owner.region)
	resource := s.arn()
	if action == actionListBucket {
		resource = s.owner.arn()
		if s.name == opListObjects || s.name == opListObjectsV2 {
			setListing(ctx, r.URL.Query())
		}
	}
	action = "s3:" + action
	v := c.authorize(s.who, action, resource, s.owner.account, s.owner.policy, false, ctx)
	switch {
	case v.allowed:
		return nil
	case s.owner.account != s.who.account: // other accounts hear no reasons
		return denied.because(v.reason)
	}
	return refused(http.StatusForbidden, "AccessDenied", notAuthorized(s.who, action, strconv.Quote(resource), v)).because(v.reason)
}

// setListing sets the condition keys of a listing: one that is not asked for is absent.
func setListing(ctx policy.Context, query url.Values) {
	for _, name := range []string{"prefix", "delimiter"} {
		if query.Has(name) {
			ctx.Set("s3:"+name, query.Get(name))
		}
	}
}

type location string

// MarshalXML writes S3's answer, which names no region for the oldest one.
func (l location) MarshalXML(e *xml.Encoder, _ xml.StartElement) error {
	if l == "us-east-1" {
		l = ""
	}
	return e.EncodeElement(string(l), xml.StartElement{Name: xml.Name{Space: s3Namespace, Local: "LocationConstraint"}}) //nolint:wrapcheck // encoding/xml's own contract
}

// forwardS3 passes an authorized request to the data plane, addressed by path, without credentials and framing.
func (c *Cloud) forwardS3(w http.ResponseWriter, r *http.Request, s *s3Call, call *journal.Call) {
	c.mu.RLock()
	h := c.objects
	c.mu.RUnlock()
	if h == nil {
		restXML{}.refuse(w, call, restXML{}.faulted(fault.Unavailable).because("no data plane was handed in for S3"))
		return
	}
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
	for name := range out.Header {
		if !forS3Plane(strings.ToLower(name)) {
			delete(out.Header, name)
		}
	}
	if encoding := plainEncoding(r.Header.Values("Content-Encoding")); encoding != "" {
		out.Header.Set("Content-Encoding", encoding)
	}
	out.Body, out.ContentLength, out.TransferEncoding = io.NopCloser(bytes.NewReader(s.content)), int64(len(s.content)), nil
	out.Header.Set("Content-Length", strconv.Itoa(len(s.content)))
	// Whether an object exists is told to those only who may list. Source: Amazon S3 API Reference, GetObject, "Permissions".
	if s.name == opGetObject || s.name == opHeadObject {
		if refusal := c.authorizeS3(s, actionListBucket, r); refusal != nil {
			w = &discreet{ResponseWriter: w, call: call, refusal: refusal}
		}
	}
	h.ServeHTTP(w, out)
}

// plainEncoding is Content-Encoding without the chunks' framing.
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

// discreet answers "no" where the data plane says "not there".
type discreet struct {
	http.ResponseWriter

	call    *journal.Call
	refusal *apiError
	refused bool
}

// WriteHeader turns a 404 into the refusal.
func (d *discreet) WriteHeader(status int) {
	if status != http.StatusNotFound {
		d.ResponseWriter.WriteHeader(status)
		return
	}
	d.refused = true
	restXML{}.refuse(d.ResponseWriter, d.call, d.refusal)
}

// Write drops the body of what was refused.
func (d *discreet) Write(b []byte) (int, error) {
	if d.refused {
		return len(b), nil
	}
	return d.ResponseWriter.Write(b) //nolint:wrapcheck // http.ResponseWriter's own contract
}

// Unwrap is for http.ResponseController.
func (d *discreet) Unwrap() http.ResponseWriter { return d.ResponseWriter }
