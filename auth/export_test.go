package auth

// FingerprintWith is Fingerprint with a given key.
func FingerprintWith(key []byte, attributes map[string]string, values []string) string {
	return newFingerprinter(key).fingerprint(attributes, values)
}
