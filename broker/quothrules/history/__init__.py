"""The rule sets as the broker keeps them: records of the topic `quoth.rules`, and versions made of them."""
