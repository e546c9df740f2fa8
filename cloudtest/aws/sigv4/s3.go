package sigv4

import (
	"fmt"
	"net/http"
	"regexp"
	"time"
)

// Values that X-Amz-Content-Sha256 may have instead of a hash. Source: Amazon S3 API Reference,
// "Authenticating Requests: Using the Authorization Header".
const (
	unsignedPayload   = "UNSIGNED-PAYLOAD"
	unsignedTrailer   = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	signedChunks      = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedWithTrailer = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
)

// ContentError is the refusal of a request to S3 whose content does not match the headers, the
// trailers or the chunks' sizes.
type ContentError struct {
	// Code is S3's error code.
	Code string
	// Message is S3's error message. It contains no part of the content.
	Message string
}

// Error returns code and message.
func (e *ContentError) Error() string { return e.Code + ": " + e.Message }

var hashForm = regexp.MustCompile(`\A[0-9a-f]{64}\z`)

// VerifyS3 is like [Signature.Verify], but follows S3's rules. The signature covers the path as the
// client sent it. The signature need not cover the content. In a presigned request, it covers the
// content only if there is a header X-Amz-Content-Sha256. The content may come in chunks with
// signatures of their own. VerifyS3 returns the content without the chunks' sizes and signatures,
// and the trailers that followed the content. The error is an [*Error] or a [*ContentError].
func (s Signature) VerifyS3(r *http.Request, body []byte, secret string, now time.Time) (content []byte, trailer http.Header, err error) {
	if err := s.checkTime(now); err != nil {
		return nil, nil, err
	}
	claimed := r.Header.Get("X-Amz-Content-Sha256")
	if claimed == "" && s.Presigned {
		claimed = unsignedPayload
	}
	switch {
	case claimed == "":
		return nil, nil, &ContentError{"InvalidRequest", "Missing required header for this request: x-amz-content-sha256"}
	case claimed == unsignedPayload, claimed == unsignedTrailer, claimed == signedChunks,
		claimed == signedWithTrailer, hashForm.MatchString(claimed):
	default:
		return nil, nil, &ContentError{"InvalidArgument", fmt.Sprintf(
			"x-amz-content-sha256 must be %s, %s, %s, %s or a valid sha256 value.",
			unsignedPayload, unsignedTrailer, signedChunks, signedWithTrailer)}
	}
	if err := s.verify(r, encode(r.URL.Path, true), claimed, secret); err != nil {
		return nil, nil, err
	}
	c := chunks{rest: body, declared: r.Header.Get("X-Amz-Decoded-Content-Length")}
	switch claimed {
	case unsignedPayload:
		return body, nil, nil
	case unsignedTrailer:
		c.trailers = trailerNames(r)
	case signedChunks:
		c.signer, c.previous = s.chunkSigner(secret), s.signature
	case signedWithTrailer:
		c.signer, c.previous, c.trailers = s.chunkSigner(secret), s.signature, trailerNames(r)
	default:
		if sum(body) != claimed {
			return nil, nil, &ContentError{
				"XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.",
			}
		}
		return body, nil, nil
	}
	return c.read()
}
