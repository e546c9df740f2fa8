// Package creds finds the credential that a job shows to a registry. The credential is a token of
// the cluster, of SPIRE or of the job's CI system, or the identity that a cloud gives to the
// machine. The job stores no secret.
//
//	flags := creds.New(creds.Process{Env: os.Getenv, Home: home})
//	flags.AddTo(command)                       // --creds, --audiences and others
//	err := flags.Check()                       // do the flags go together?
//	login, err := flags.Login(ctx, repository) // get the credential
//	defer login.Close()
//
// A registry that gets a token could use it at any other server that accepts one of the token's
// audiences. So package creds refuses the audiences of the cluster and of clouds.
package creds
