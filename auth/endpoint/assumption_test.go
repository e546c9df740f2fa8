package endpoint_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestParseAssumption(t *testing.T) {
	const arn = "arn:aws:iam::222233334444:role/team/reader"
	role, err := endpoint.ParseRoleARN(arn)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]endpoint.Assumption{
		arn: {Role: role},
		arn + " externalID=a:b/c=d sessionName=tenant-a@x durationSeconds=900": {Role: role, ExternalID: "a:b/c=d", SessionName: "tenant-a@x", Duration: 15 * time.Minute},
		arn + " durationSeconds=3600":                                          {Role: role, Duration: time.Hour},
	} {
		if got, err := endpoint.ParseAssumption(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"":                                  "it is empty",
		"reader":                            "not an ARN",
		arn + " ":                           `"" is unknown`,
		arn + "  externalID=agreed":         `"" is unknown`,
		arn + " agreed":                     `"agreed" is unknown`,
		arn + " roleARN=" + arn:             `"roleARN" is unknown`,
		arn + " externalID=a externalID=bc": "external ID",
		arn + " externalID=ab externalID=c": "twice",
		arn + " externalID=" + strings.Repeat("a", 1225): "external ID",
		arn + " externalID=a\nb":                         "external ID",
		arn + " sessionName=a":                           "session name",
		arn + " sessionName=a:b":                         "session name",
		arn + " durationSeconds=899":                     "duration",
		arn + " durationSeconds=3601":                    "no more than an hour",
		arn + " durationSeconds=1h":                      "duration",
		arn + "\texternalID=agreed":                      "role name",
	} {
		got, err := endpoint.ParseAssumption(text)
		if _, ok := errors.AsType[*endpoint.Error](err); !ok || got != (endpoint.Assumption{}) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.200q: %+v, %v; want %q", text, got, err, says)
		}
	}
}
