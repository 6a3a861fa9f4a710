"""Is a verification policy lossless? The parts of ``dspark-sim policy check`` and :mod:`dspark_sim.testing`.

Notation, as in the DSpark paper: request r drafts tokens d_{r,1} … d_{r,G}; the confidence c_{r,k} is a function of
the text and of d_{r,1} … d_{r,k-1}, so it is known just before token k is drawn; the policy verifies ℓ_r tokens.

**The rule.** ℓ must be a *joint stopping rule*: changing, for all requests at once, only confidences at positions
beyond ℓ_r + 1 never changes any ℓ. Then the event {ℓ = (ℓ_1, …, ℓ_R)} is a function of the tokens d_{r,1} … d_{r,ℓ_r}.

**Why it suffices.** Couple a whole block with the target's text y by rejection sampling. For every fixed ℓ the pair
(d_{r,1..ℓ_r}, y) has the law that verifying exactly ℓ_r tokens gives, since the bonus token has the same law as
"accept d_{ℓ+1}, or draw from the residual" once d_{ℓ+1} is averaged out. So P(ℓ, y) may be computed under full
verification, and summing over the disjoint events {ℓ} leaves the law of y: the target's own, jointly over requests.

**Per request is too weak.** R = 2, "verify token 1 of request 1 if c_{2,2} is high, and the other way round": no
request looks at its own future, both marginals are exact, and the joint law is wrong (P(AA) = 0.5125, not 0.49).

**For one request it is also necessary**: let the token at ℓ + 1 decide between the two rows of a counterexample, and
the output law is off. For several it is not quite: a policy that reads the tail of a row which it verifies without
regard to others loses nothing. Such a policy is called *not proven*, not refuted.

**Earlier steps are free.** Given everything that happened up to the end of a step, drafts and unverified tails
included, a real engine draws the next block and the next bonus token afresh. So a policy may use the tails of earlier
rows, through ``past`` or its own memory, and stays exact: :mod:`.enumerate` shows it. (A *replay* of a recorded trace
is another matter: there an unverified tail is coupled to the recorded text, and a policy that reads it is replayed
approximately.)

**Random numbers.** The rule is checked for a fixed random stream, that is for every value of the policy's coins.
A policy that draws *more* coins when a later confidence is high fails it, though its law may be exact on average: draw
the same number of coins in every step.

**Greedy decoding allows more.** At temperature 0 the target emits the arg max after every prefix. A draft token is
kept if and only if it *is* that arg max, the correction and the bonus token are that arg max too, so the text is the
same whatever is verified: any whole ℓ within the draft is lossless, looking ahead and even at the outcome included.
What stays forbidden is deciding on confidences before they exist (``draft_lengths``, ``stop_drafting``). Not covered:
kernels whose floating-point result depends on the batch size, which can move an arg max whatever the policy does.
"""
