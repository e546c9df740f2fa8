// Package creds finds the credential that a job shows to a registry: a token of the cluster, of
// SPIRE or of the CI system that runs the job, or the identity that a cloud gives to the machine.
// The job stores no secret.
//
//	flags := creds.New(creds.Process{Env: os.Getenv, Home: home})
//	flags.AddTo(command)                       // --creds, --audiences and others
//	err := flags.Check()                       // do the flags go together?
//	login, err := flags.Login(ctx, repository) // get the credential
//	defer login.Close()
//
// A token is valid at each server that its audiences list. So a token for a registry must not open
// a cloud or the cluster: package creds refuses such an audience, by the rule of package auth/spec.
package creds
